"""What a sweep runs: the programs, each behind one protocol."""
