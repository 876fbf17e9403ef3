"""Settings of the built-in job, with the checks of their values. Loads no torch."""
