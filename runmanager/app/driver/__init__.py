"""The driver of a sweep: checks before the first run, the plan, and listening to the runs."""
