"""Faults that a machine may have while sweeps run, a module each kind; `tests/reliability/fault_rows.py` tries them."""
