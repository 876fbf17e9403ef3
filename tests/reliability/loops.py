"""A custom training loop as the program that tests/reliability/kills.py kills, instead of a sweep."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from commands import environment
from forked_python import start_forked
from programs import Process, Sweep

# It notes the beginning of each epoch and of each step, so that an epoch that runs twice is detected independently of
# the records; a step within an epoch may run twice. With an order it kills itself before a step, as `3 4` says: before
# step 4 of epoch 3.
LOOP = """
import os, random, signal, sys, warnings
from pathlib import Path

warnings.filterwarnings("ignore", "'set_vital' is deprecated")  # torchdata's
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from runmanager import RunManager, RunOptions, TensorBoardOptions

root, variant = Path(sys.argv[1]), sys.argv[2]
order = Path("deaths", variant)
EPOCHS, BATCH = 20, 8
random.seed(1)
np.random.seed(1)
torch.manual_seed(1)
images, labels = torch.rand(46, 1, 8, 8), torch.randint(0, 5, (46,))
dataset = TensorDataset(images, labels)

def note(line):
    handle = os.open(root / "begun.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, f"{line}\\n".encode())
    os.close(handle)

def die(epoch, step):
    if order.exists() and order.read_text() == f"{epoch} {step}":
        order.unlink()
        os.kill(os.getpid(), signal.SIGKILL)

network = nn.Sequential(
    nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 5)
)
average = torch.optim.swa_utils.AveragedModel(network, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
STEPS = -(-len(dataset) // BATCH)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=EPOCHS * STEPS)
state = {"optimizer": optimizer, "scheduler": scheduler, "average": average}
seconds = 60.0
if variant == "shuffle":
    loader = DataLoader(dataset, BATCH, shuffle=True)
elif variant == "generator":
    generator = state["order"] = torch.Generator().manual_seed(7)
    loader = DataLoader(dataset, BATCH, shuffle=True, generator=generator)
else:
    workers = 1 if variant == "workers" else 0
    loader = state["loader"] = StatefulDataLoader(dataset, BATCH, shuffle=True, num_workers=workers)
    seconds = 1e-9  # after each step

manager = RunManager(root, tensorboard=TensorBoardOptions(graph=False, images=False, predictions=False), console=False)
options = RunOptions(log_every=2, keep_best="val_loss", checkpoint_seconds=seconds)
with manager.run({"variant": variant}, network, loader, optimizer=optimizer, state=state, options=options) as run:
    for epoch in run.epochs(EPOCHS):
        note(f"{run.record.name} {epoch.number}")
        network.train()
        for inputs, targets in epoch.batches(loader):
            step = epoch.num_steps - run.num_steps + 1
            die(epoch.number, step)
            preds = network(inputs + 0.01 * torch.randn_like(inputs))
            loss = F.cross_entropy(preds, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            average.update_parameters(network)
            epoch.track(loss, preds, targets, tokens=len(targets), metrics={"norm": network[1].weight.norm()})
        die(epoch.number, STEPS + 1)
        network.eval()
        with torch.no_grad():
            for inputs, targets in epoch.eval_batches(DataLoader(dataset, BATCH)):
                preds = average(inputs)
                epoch.track_eval(F.cross_entropy(preds, targets), preds, targets)
        epoch.log(lr=scheduler.get_last_lr()[0])
"""


class Loop(Sweep):
    """A custom loop with one run, in one of the variants: how its loader shuffles, and where it resumes."""

    variants: ClassVar[Mapping[str, Sequence[str]]] = dict.fromkeys(("shuffle", "generator", "stateful", "workers"), ())
    targets: ClassVar[Sequence[str]] = ("driver", "group")

    def run(self) -> float:
        """Run the program to its end; return the seconds that its run took, without what follows it."""
        super().run()
        (record,) = self.records()
        assert record.run_seconds is not None
        return record.run_seconds

    def start(self) -> Process:
        """Start the program in a new process group; its output goes to `log_path`."""
        return start_forked(self._words(), folder=self.folder, environment=environment(), log=self.log_path)

    def _words(self) -> tuple[str, ...]:
        (self.folder / "loop.py").write_text(LOOP)
        return "loop.py", str(self.paths.root), self.variant
