"""Sampling the machine and its GPUs while a run is running, and measuring their peaks."""
