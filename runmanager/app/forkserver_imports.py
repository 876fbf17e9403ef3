"""Imports that a run would otherwise make on first use, made once in the forkserver."""

from importlib import import_module

import PIL.Image

for _name in (
    "runmanager.app.run_cell",
    "runmanager.app.request.grid_sweeper_options",
    "importlib.metadata._adapters",  # at the first look-up of a package version, on Python 3.13
    "numpy.random",
    "torch._dynamo",  # by the first optimiser, compiled or not: a second for each run
    "torch.utils.serialization.config",
):
    import_module(_name)

PIL.Image.preinit()  # the common formats; otherwise the first written image loads them
