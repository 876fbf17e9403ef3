"""Benchmarks of every speed the documents quote: `python -m benchmarks.NAME`, or all with `make bench`."""
