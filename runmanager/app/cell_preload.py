"""What a run would import when it first needs it: optimisers, graphs, images. Imported in the forkserver, for that."""

import numpy.random  # noqa: F401
import PIL.Image
import tensorboard.plugins.hparams.metadata  # noqa: F401
import torch._dynamo  # by the first optimiser that is made, compiled or not: a second of each run
import torch.utils.serialization.config  # noqa: F401

import runmanager.app.cell
import runmanager.app.options  # noqa: F401

PIL.Image.preinit()  # the formats that everybody has; else the first image that is written does it
