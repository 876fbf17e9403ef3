"""Records of runs and sweeps, and how they are stored. Must not import torch, Hydra, TensorBoard or pandas."""
