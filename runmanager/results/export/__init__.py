"""Exports of a stored sweep to other tools."""
