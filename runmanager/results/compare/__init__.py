"""The comparison of runs: pairing, metrics, effects and verdicts."""
