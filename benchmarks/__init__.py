"""Every speed that is quoted, as a ratio measured side by side: `python -m benchmarks.NAME`, all by `make bench`."""
