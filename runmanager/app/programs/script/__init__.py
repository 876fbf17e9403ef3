"""Scripts: programs that take their settings as command-line arguments."""
