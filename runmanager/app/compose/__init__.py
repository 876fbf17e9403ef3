"""Composition of checked cells from a command's overrides."""
