"""Event files of TensorBoard, written by any program: reading them, and a table of their contents."""
