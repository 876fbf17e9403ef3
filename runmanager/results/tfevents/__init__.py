"""TensorBoard event files of any program, read without TensorBoard."""
