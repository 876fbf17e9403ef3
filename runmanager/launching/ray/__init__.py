"""Runs on a Ray cluster, or on a local Ray: each cell is a task that gets the cores and GPUs that it asks for."""
