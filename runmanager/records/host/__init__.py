"""The machine: processes, memory, standard streams, and measured peak rates of devices."""
