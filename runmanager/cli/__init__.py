"""The `runmanager` command. Slow imports are made inside the command that needs them."""
