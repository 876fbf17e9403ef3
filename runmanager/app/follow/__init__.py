"""Following a sweep from its files alone."""
