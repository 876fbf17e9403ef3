"""Output of a script: its process, the numbers that it prints, and how it ended."""
