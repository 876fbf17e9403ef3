"""Tracking of runs: the manager, the phase timer, measurements, devices and sinks."""
