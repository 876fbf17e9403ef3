"""Files and folders: their paths, crash-safe writing, and clear errors."""
