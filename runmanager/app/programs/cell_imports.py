"""Imports and look-ups that each cell of a script or an application would make, made once in the forkserver."""

import logging.config
import logging.handlers  # noqa: F401  # Hydra's logging imports both
from importlib import import_module

import runmanager.results.program_files.folder_metrics  # noqa: F401  # for the cells, not for this module
from runmanager.tracking.environment.environment import cpu_model, library_versions

import_module("hydra_plugins.runmanager")  # its callback comes with each cell of an application
cpu_model()  # both are remembered
library_versions()
