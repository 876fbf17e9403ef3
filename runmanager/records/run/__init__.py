"""What is recorded of a run: its record, status, attempts, measurements, epochs and turns."""
