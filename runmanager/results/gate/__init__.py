"""Two sweeps compared, and conditions on a comparison that fail a pipeline."""
