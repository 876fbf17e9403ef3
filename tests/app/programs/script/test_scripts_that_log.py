"""Scripts that call `start_run` in a cell: their epochs are the cell's, next to what they print."""

from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_sweep
from runmanager.results.tfevents.reader import read_event_files

from .conftest import Folder

SCRIPT = """
import argparse
import torch
import runmanager

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--way", default="fine")
args = parser.parse_args()
print("printed 7")
network, batches = torch.nn.Linear(2, 1), [(torch.ones(4, 2), torch.ones(4, 1))] * 3
optimizer = torch.optim.SGD(network.parameters(), lr=args.lr)
with runmanager.start_run(network, batches, params=vars(args)) as run:
    for number, epoch in enumerate(run.epochs(2), start=1):
        for inputs, targets in epoch.batches(batches):
            loss = ((network(inputs) - targets) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            epoch.track(loss * (float("nan") if args.way == "diverges" else 1), samples=4)
        epoch.log(val_f1=args.lr)
        print("printed", number)
        if args.way == "raises":
            raise ValueError("after an epoch")
    run.summary["twice"] = args.lr * 2
"""


def test_the_epochs_of_a_script_are_those_of_its_cell(folder: Folder) -> None:
    folder.write("train.py", SCRIPT)
    scalar = ("--scalar", r"printed=printed (\d+)", "--scalar", r"twice=printed (\d)")
    done = folder.run("sweep", "--name", "logs", *scalar, "train.py", "lr=0.5", "way=fine,raises,diverges")
    assert done.status == 1, done.err
    runs = {run.record.config["way"]: run for run in read_sweep(SweepPaths(folder.path / "outputs" / "logs")).runs}
    ends = {way: (run.record.status, run.record.reason, run.record.message) for way, run in runs.items()}
    assert ends["fine"] == ("finished", None, "")
    assert ends["raises"] == ("failed", "exception", "ValueError: after an epoch")
    assert ends["diverges"][:2] == ("failed", "diverged")

    fine = runs["fine"]
    assert [(each.epoch, each.samples, each.metrics) for each in fine.epochs] == [
        (number, 12, {"val_f1": 0.5}) for number in (1, 2)
    ]
    assert fine.record.summary == {"twice": 1.0, "printed": 2.0}  # what is logged is trusted more
    assert fine.record.origins == {"printed": "printed"}
    assert (fine.record.num_parameters, fine.record.epochs_planned, fine.record.num_records) == (3, 2, 2)
    assert set(fine.record.environment.code or {}) == {"train.py"}
    assert fine.record.environment.command[:2] == ("runmanager", "sweep")
    assert "after an epoch" in runs["raises"].paths.error.read_text()

    (file,) = fine.paths.root.glob("events.out.tfevents.*")
    assert "printed" not in read_event_files([file]).scalars
    (file,) = (fine.paths.root / "printed").glob("events.out.tfevents.*")
    assert list(read_event_files([file]).scalars["printed"].values) == [7, 1, 2]
    assert not fine.paths.attempts.exists()
