"""Run folders: claiming, writing as the only owner, ending, and reading runs and sweeps."""
