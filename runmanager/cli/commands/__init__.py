"""The commands of the `runmanager` command line."""
