"""Imports and look-ups that each cell of another program would otherwise make, made once in the forkserver."""

import runmanager.app.programs.script.script_cell
import runmanager.results.program_files.found_metrics
import runmanager.tracking.tensorboard.event_writer  # noqa: F401  # these are imported for the cells, not for this module
from runmanager.tracking.device.cpu_model import cpu_model
from runmanager.tracking.environment.environment import library_versions

cpu_model()  # both are remembered
library_versions()
