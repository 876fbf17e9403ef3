"""Runs that a program starts in one line, by itself or in a cell of a sweep."""
