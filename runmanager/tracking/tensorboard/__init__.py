"""The TensorBoard sink, its event files, and the log directory that shows a sweep in TensorBoard."""
