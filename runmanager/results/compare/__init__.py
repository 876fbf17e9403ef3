"""The comparison: which runs are compared, by which metric, with what effect and verdict."""
