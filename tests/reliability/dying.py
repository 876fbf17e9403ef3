"""A custom model that dies in its first training step, in the way that `way` names, or trains normally.

With batches of half the samples an epoch has two steps; the third step is the first of the second epoch.
"""

import os
import signal
import sys
import time
from pathlib import Path

import torch

_TIMEOUT_SECONDS = 300


class Net(torch.nn.Module):
    def __init__(self, in_shape, num_classes, way="fine"):
        super().__init__()
        self.linear = torch.nn.Linear(in_shape[0] * in_shape[1] * in_shape[2], num_classes)
        self.way = way
        self.steps = 0

    def forward(self, images):
        if self.training:
            self.steps += 1
            if self.steps == 1:
                getattr(self, "_" + self.way)()
            if self.steps == 3 and self.way == "gate":
                self._wait()
        scores = self.linear(images.flatten(1))
        return scores * float("nan") if self.way == "diverges" and self.training else scores

    def _wait(self):
        """Wait while the file `gate` is in the current folder; a line in the file `told` there tells of SIGTERM."""
        earlier = signal.getsignal(signal.SIGTERM)

        def note_signal(number, frame):
            earlier(number, frame)
            with Path("told").open("a") as file:
                print("told", file=file)

        signal.signal(signal.SIGTERM, note_signal)
        until = time.monotonic() + _TIMEOUT_SECONDS
        while Path("gate").exists():
            Path("waiting").touch()
            if time.monotonic() > until:
                raise TimeoutError("the gate was not opened")
            time.sleep(0.05)

    def _fine(self):
        pass

    _one = _two = _three = _four = _gate = _diverges = _fine

    def _raises(self):
        raise ValueError("this model wants no data")

    def _exits(self):
        sys.exit(3)

    def _memory(self):
        raise MemoryError("all is full")

    def _killed(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def _segfaults(self):
        os.kill(os.getpid(), signal.SIGSEGV)

    def _hangs(self):
        time.sleep(2 * _TIMEOUT_SECONDS)

    def _loader(self):
        import psutil

        for worker in psutil.Process().children():
            worker.kill()
