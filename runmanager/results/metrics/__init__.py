"""The metrics that runs are compared by: their values of a run, and which direction is better."""
