"""Checkpoints of a run: the file, the training state in it, the state of a custom loop, and parts of an epoch."""
