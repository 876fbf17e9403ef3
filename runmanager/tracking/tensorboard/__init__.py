"""The TensorBoard sink, its event files, and the folder that TensorBoard is shown of a sweep."""
