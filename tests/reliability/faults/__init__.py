"""Faults that a machine may have while sweeps run: each kind is a module, and `tests/reliability/fault_rows.py` tries them."""
