"""The machine and the code that a run is made with."""
