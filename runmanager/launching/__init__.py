"""Many runs: planning a sweep, running each cell in a separate process, and observing how it ends."""
