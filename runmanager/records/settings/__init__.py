"""Settings: grids of them, their identity as a signature, and short names for what varies."""
