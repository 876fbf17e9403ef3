"""Races: processes that take turns on one machine: paired sweeps, duels, and the search for the fastest settings."""
