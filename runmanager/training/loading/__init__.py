"""Loaders: batches of a dataset on the training device, in an order that only the seed and the epoch decide."""
