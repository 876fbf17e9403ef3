"""Records of runs: status, attempts, epochs, measurements, heartbeats and turns."""
