"""Settings of runs: grids, plain values, signatures and names."""
