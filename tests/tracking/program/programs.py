"""Programs that start a run in one line, as real processes."""

import os
import subprocess
from pathlib import Path

from ...forked_python import start_forked

__all__ = ["TRAIN", "run_program"]

TRAIN = """
import os, sys, torch, runmanager
from torch import nn
from torch.utils.data import DataLoader

class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        if torch.utils.data.get_worker_info() is not None:
            runmanager.log(in_worker=1.0)  # where nothing is logged
        return torch.full((4,), float(index)), index % 2

class Stays(nn.Linear):
    def to(self, *_, **__):
        raise AssertionError("a model without a device setting must stay where it is")

def main(workers):
    torch.manual_seed(0)
    model, loader = Stays(4, 2), DataLoader(Points(), batch_size=10, num_workers=workers)
    run = runmanager.start_run(model, loader, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), root="sweep")
    for epoch in run.epochs(2):
        for inputs, labels in epoch.batches(loader):
            loss = nn.functional.cross_entropy(model(inputs / 20), labels)
            epoch.track(loss, model(inputs / 20), labels)
            runmanager.log(step_loss=loss, reduce="mean")
        runmanager.log({"val/f1": 0.5 * epoch.number})
    run.summary["test_f1"] = torch.tensor(0.75)
    (run.dir / "own.txt").write_text("kept")
    print("steps", run.num_steps, "recorded" if run.paths.epochs.exists() else "not recorded")
"""


def run_program(
    folder: Path, code: str, *words: str, status: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the code as a script in `folder`, with these words; check its exit status."""
    script = folder / "train.py"
    script.write_text(code)
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    done = start_forked([str(script), *words], folder=folder, environment=variables).end()
    assert done.returncode == status, done.stderr
    return done
