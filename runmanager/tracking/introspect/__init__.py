"""Inspection of models and loaders without changing them: copies, recorded operations, the cost of a step."""
