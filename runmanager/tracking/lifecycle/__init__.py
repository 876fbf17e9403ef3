"""The life cycle of a run: opening its folder, its epochs and measurements, stopping, and its outcome."""
