"""Bridges that record what a framework trains: Lightning, Transformers and Accelerate, each in its own module."""
