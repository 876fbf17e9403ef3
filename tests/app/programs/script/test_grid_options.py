"""Options of a script's grid as a user gives them, in one sweep: zip, points, exclude, notify."""

import csv
import json

from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_sweep

from ....file_schemas import check_sweep_files
from ....standin_apprise import write_standin
from .conftest import ROOT, Folder

SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
for name in ("lr", "batch-size", "seed", "word"):
    parser.add_argument(f"--{name}")
given = parser.parse_args()
print(f"Loss: {float(given.lr) * 2}")
assert given.seed != "1" or given.lr != "0.1"
"""
URL = "json://user:a-secret@localhost"


def test_one_sweep_with_every_rule_of_grids(folder: Folder) -> None:
    folder.write("train.py", SCRIPT)
    folder.write("points.csv", 'word,seed\n"a,b",0\nc,1\n')
    variables = {
        "PYTHONPATH": f"{write_standin(folder.path / 'standin')}:{ROOT}",
        "SENT": str(folder.path / "sent"),
    }
    words = ("--scalar", r"loss=Loss: (\S+)", "--name", "grid", "--zip", "lr,batch_size", "--points", "points.csv")
    program = ("train.py", "lr=0.1,0.2,0.3", "batch-size=16,32,64")
    refused = folder.run("sweep", *words, "--exclude", "size>16", "--dry-run", *program)
    assert refused.status == 2 and refused.err.startswith("error: `--exclude` must name settings, got 'size'")

    done = folder.run("sweep", *words, "--exclude", "batch_size>32", "--notify", URL, *program, **variables)
    assert done.status == 1, done.err  # one cell fails
    assert "2 cells of the grid are excluded." in done.out
    with (folder.path / "outputs" / "grid" / "results.csv").open() as file:
        rows = [(row["word"], row["lr"], row["batch_size"], row["seed"], row["loss"]) for row in csv.DictReader(file)]
    assert sorted(rows)[:3] == [
        ("a,b", "0.1", "16", "0", "0.2"),
        ("a,b", "0.2", "32", "0", "0.4"),
        ("c", "0.1", "16", "1", "0.2"),
    ]
    urls, title, body = json.loads((folder.path / "sent").read_text())
    assert urls == [URL] and title == "grid: 3 finished, 1 failed"
    assert body.startswith(str(folder.path / "outputs" / "grid"))
    files = [path for path in (folder.path / "outputs").rglob("*") if path.is_file()]
    assert not [path for path in files if b"a-secret" in path.read_bytes()]
    assert check_sweep_files(folder.path / "outputs" / "grid") >= 5

    alone = ("lr=0.2", "batch-size=32", "seed=0", "word='a,b'")
    single = folder.run("run", "--name", "grid", "--scalar", r"loss=Loss: (\S+)", "train.py", *alone)
    assert single.status == 0 and "1 finished already" in single.out
    assert len(read_sweep(SweepPaths(folder.path / "outputs" / "grid")).runs) == 4
