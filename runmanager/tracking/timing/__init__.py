"""Timing: clocks, phases of an epoch, warm-up detection, and turns of interleaved runs."""
