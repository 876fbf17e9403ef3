"""Arguments of a script: its settings as words of its command line, and what its help says of them."""
