"""What happens during a run: the manager, the phase timer, device facts and sinks."""
