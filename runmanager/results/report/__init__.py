"""The HTML report and the Markdown summary of a sweep, and the details of one run."""
