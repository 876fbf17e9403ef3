"""What a sweep is asked for: its options, each declared once, and the words of a command. Few imports."""
