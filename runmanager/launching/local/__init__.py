"""Runs on this machine: one process per run, forked from a server, with GPU slots and time limits."""
