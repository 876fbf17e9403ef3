"""The machine and the code that a run is made with, and sampling both while it runs."""
