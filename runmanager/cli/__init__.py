"""The `runmanager` command. Every heavy import stands inside the command that needs it."""
