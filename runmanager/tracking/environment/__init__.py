"""The environment of a run: machine, versions and code at its start, and samples of CPU and GPU while it runs."""
