"""What a run is, and how it is kept on disk. No torch, Hydra, TensorBoard or pandas in here."""
