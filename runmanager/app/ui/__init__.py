"""The pages of `runmanager ui`: all sweeps of a folder and their reports, live and read-only."""
