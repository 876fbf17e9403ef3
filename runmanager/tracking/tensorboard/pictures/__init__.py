"""The pictures of an evaluation: predictions and the confusion matrix."""
