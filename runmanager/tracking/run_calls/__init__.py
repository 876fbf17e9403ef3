"""The calls of a run for its program: in any loop, and of the built-in job."""
