"""What a run would import when it first needs it: optimisers, graphs, images. Imported in the forkserver, for that."""

from importlib import import_module

import PIL.Image

for _name in (
    "runmanager.app.cell_task",
    "runmanager.app.sweeper_options",
    "importlib.metadata._adapters",  # by the first package that is asked for its version, on Python 3.13
    "numpy.random",
    "torch._dynamo",  # by the first optimiser that is made, compiled or not: a second of each run
    "torch.utils.serialization.config",
):
    import_module(_name)

PIL.Image.preinit()  # the formats that everybody has; else the first image that is written does it
