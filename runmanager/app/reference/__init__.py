"""Descriptions of every setting, for `runmanager help` and the generated pages of the documentation. Loads no torch."""
