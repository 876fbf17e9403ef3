"""The stations of a run: opened, measured, stopped, and its outcome recorded."""
