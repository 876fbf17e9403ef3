"""The figures of a sweep: one module per figure, and their shared style, axes and output formats."""
