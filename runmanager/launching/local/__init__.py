"""Runs on this machine: a process each, from a forkserver, with GPU slots and time limits."""
