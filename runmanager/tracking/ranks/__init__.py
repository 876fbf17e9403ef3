"""What the ranks of one run tell each other at the end of each epoch: measurements, and the decision to stop."""
