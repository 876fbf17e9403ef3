"""Hydra applications of other people as programs of sweeps."""
