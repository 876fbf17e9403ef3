"""Metrics: losses, correct predictions and evaluations, buffered on the device until an epoch ends."""
