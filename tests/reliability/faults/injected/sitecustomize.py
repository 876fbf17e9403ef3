"""Imported by every Python process whose PYTHONPATH has this folder: installs the faults that its environment names."""

import fault_seam

fault_seam.install_from_environment()
