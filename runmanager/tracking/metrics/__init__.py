"""Losses, correct predictions and evaluations, kept on the device until an epoch ends."""
