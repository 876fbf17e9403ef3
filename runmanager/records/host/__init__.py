"""The machine: its processes, memory, standard streams, and what its devices were measured to do at most."""
