"""Changes of stored sweeps on request: removing and renaming; nothing that may be alive is touched."""
