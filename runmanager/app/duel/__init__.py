"""Duels of two commits, or of two Python environments: each side is a driver of its own."""
