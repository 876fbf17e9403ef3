"""What a command shows in a terminal or a notebook while runs run."""
