"""Metrics that a program left in files of its own: event files of TensorBoard, and Lightning's metrics.csv."""
