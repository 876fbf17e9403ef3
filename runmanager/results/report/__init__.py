"""The HTML report of a sweep, and what is shown of one run."""
