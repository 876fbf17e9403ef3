"""Sweeps: their record, and finding sweeps and runs by name."""
