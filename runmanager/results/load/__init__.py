"""Reading a sweep for its tables: run summaries and their cache, cells, duplicates, contention."""
