"""Devices: their names and memory, moving batches and models to them, and random states."""
