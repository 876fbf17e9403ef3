"""The umask alone decides who may read and write what is stored: a group that shares a sweep, or its owner only."""

import os
import stat
import subprocess
import sys
from pathlib import Path

from ..processes import wait_for_output

ROOT = Path(__file__).resolve().parents[2]
TASK = """
import os

import hydra


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    if os.environ["RUNMANAGER_ATTEMPT"] == "1":
        raise ValueError("an unlucky start")
    return 1.0


if __name__ == "__main__":
    main()
"""
CONFIG = "lr: 0.1\ntoken: ${oc.env:API_KEY}\n"
SCRIPT = """
import argparse
import torch
import runmanager

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
params = vars(parser.parse_args())
network = torch.nn.Linear(4, 2)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 4), torch.ones(8).long()), 4)
optimizer = torch.optim.SGD(network.parameters(), params["lr"])
with runmanager.start_run(network, loader, params=params, optimizer=optimizer, state={"sgd": optimizer}) as run:
    for epoch in run.epochs(2):
        for inputs, targets in epoch.batches(loader):
            loss = torch.nn.functional.cross_entropy(network(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            epoch.track(loss, samples=4)
"""
STOPPED = "import argparse, os, signal\nargparse.ArgumentParser().parse_args()\nos.kill(os.getppid(), signal.SIGTERM)\n"
TASK_WORDS = (
    *("-m", "hydra/sweeper=runmanager", "hydra.sweeper.name=task"),
    *("hydra.launcher.retries=1", "hydra.launcher.retry_on=[exception]"),
)
COMMANDS = """
import sys
from runmanager.cli.main import run_command

for words in ("ls", "report grid", "note grid kept", "export grid --to parquet", "rm task --yes"):
    assert run_command(words.split()) == 0, words
"""
STORED = {
    *("sweep.json", "labels.json", "report.html", "results.csv", "runs.parquet", ".summaries", ".trash"),
    *("run.json", "config.yaml", "run.log", "error.txt", "epochs.jsonl", "reported.json", "checkpoint.pt", "attempts"),
    *("secrets.key", ".stop-1"),
}


def test_every_stored_file_and_folder_has_the_mode_that_the_umask_gives(tmp_path: Path) -> None:
    umask = 0o007  # more than the usual one lets the group do, and less others
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text(CONFIG)
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "stopped.py").write_text(STOPPED)
    variables = {
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": str(ROOT),
        "API_KEY": "secret",
        "XDG_CACHE_HOME": str(tmp_path / "outputs" / "cache"),
    }

    def run(*words: str) -> str:
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=tmp_path,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            umask=umask,
        )
        return "".join(wait_for_output(process))

    run("task.py", *TASK_WORDS)
    main = "import sys; from runmanager.cli.main import run_command; sys.exit(run_command(sys.argv[1:]))"
    run("-c", main, "sweep", "--name", "grid", "train.py", "lr=0.1")
    run("-c", main, "sweep", "--name", "stopped", "stopped.py")
    run("train.py", "--lr", "0.1")
    said = run("-c", COMMANDS)
    stored = list((tmp_path / "outputs").rglob("*"))
    missing = STORED - {path.name for path in stored}
    assert not missing, said
    assert any(".tfevents." in path.name for path in stored)
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in stored if not path.is_symlink()}
    wanted = {path: (0o777 if path.is_dir() else 0o666) & ~umask for path in modes}
    (key,) = (path for path in stored if path.name == "secrets.key")
    wanted[key] = 0o600
    others = {str(path.relative_to(tmp_path)): f"{modes[path]:o}" for path in modes if modes[path] != wanted[path]}
    assert others == {}
