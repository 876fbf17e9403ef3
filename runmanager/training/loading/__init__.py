"""Loaders: from a dataset to batches on the training device, in an order that the seed decides."""
