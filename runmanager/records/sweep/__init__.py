"""What is recorded of a sweep, and how to find a sweep or a run by name."""
