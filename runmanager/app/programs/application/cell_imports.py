"""Imports and look-ups that each cell of a Hydra application would otherwise make, made once in the forkserver."""

import logging.config
import logging.handlers  # noqa: F401  # Hydra's logging imports both
from importlib import import_module

import tensorboard.compat.proto.event_pb2  # noqa: F401  # to read event files

import runmanager.app.programs.application.ranked_task
import runmanager.results.program_files.found_metrics  # noqa: F401  # these are imported for the cells, not for this module
from runmanager.tracking.device.cpu_model import cpu_model
from runmanager.tracking.environment.environment import library_versions

import_module("hydra_plugins.runmanager")  # its callback comes with each cell
cpu_model()  # both are remembered
library_versions()
