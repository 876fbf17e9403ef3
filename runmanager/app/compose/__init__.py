"""From the words of a command to checked cells."""
