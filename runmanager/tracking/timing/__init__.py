"""Where the time of an epoch goes: clocks, phases, warm-up, and turns of runs that are interleaved."""
