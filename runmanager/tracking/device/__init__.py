"""Devices: names, memory, transfer and prefetching of batches, and random states."""
