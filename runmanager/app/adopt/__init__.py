"""Results that were made without this package become a sweep: `runmanager adopt`."""
