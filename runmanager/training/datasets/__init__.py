"""Datasets: built-in, downloaded and custom ones, and their splits."""
