"""What a network is trained for and judged by: the loss of a batch, and metrics of an evaluation."""
