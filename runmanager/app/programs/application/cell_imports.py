"""Further imports of each cell of a Hydra application, made once in the forkserver."""

import logging.config
import logging.handlers  # noqa: F401  # Hydra's logging imports both
from importlib import import_module

import runmanager.app.programs.application.ranked_task  # noqa: F401  # imported for the cells, not for this module

import_module("hydra_plugins.runmanager")  # its callback comes with each cell
