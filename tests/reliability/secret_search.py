"""Give secrets to every kind of program, and search all that is written and printed for them.

python tests/reliability/secret_search.py --write docs/security.md
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from page import write_row

__all__ = ["SECRETS", "Search", "search_programs"]

ROOT = Path(__file__).resolve().parents[2]
SECRETS = ("Kz7!marker-q", "Vw3'marker\"u", "marker_Lr9")
"""Texts that nothing else contains; with characters that YAML, JSON, HTML and a shell write in another way."""

_KEY, _QUOTED, _FIXED = SECRETS
_TOLD = hashlib.sha256(_KEY.encode()).hexdigest()

_MODEL = f"""
import hashlib
import torch

class Net(torch.nn.Module):
    def __init__(self, in_shape, num_classes, api_key, fails=False):
        super().__init__()
        assert hashlib.sha256(api_key.encode()).hexdigest() == "{_TOLD}", "another key"
        if fails:
            raise ValueError(f"the server refuses the key {{api_key}}")
        self.layer = torch.nn.Linear(in_shape[0] * in_shape[1] * in_shape[2], num_classes)

    def forward(self, images):
        return self.layer(images.flatten(1))
"""

_APPLICATION = f"""
import hashlib
import hydra

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    assert hashlib.sha256(cfg.db.password.encode()).hexdigest() == "{_TOLD}", "another password"
    assert cfg.db.password in cfg.db.url
    if cfg.lr > 0.1:
        raise ValueError(f"no answer from {{cfg.db.url}}")
    return cfg.lr

main()
"""
_APPLICATION_CONFIG = """
lr: 0.1
db:
  password: ???
  url: db://me:${db.password}@host/
"""

_SCRIPT = f"""
import argparse, hashlib
parser = argparse.ArgumentParser()
for name in ("--lr", "--api-key", "--auth-token"):
    parser.add_argument(name)
given = parser.parse_args()
assert hashlib.sha256(given.api_key.encode()).hexdigest() == "{_TOLD}", "another key"
if given.lr == "0.2":
    raise ValueError(f"no answer for {{given.api_key}} and {{given.auth_token}}")
print("score: 1")
"""

_LOOP = """
import sys
import torch
from runmanager import RunManager, start_run

key, quoted = sys.stdin.read().split("\\n")
manager = RunManager("outputs/loop", secrets=["pin"])
network = torch.nn.Linear(2, 2)
batches = [(torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64))]
for lr in (0.1, 0.2):
    params = {"lr": lr, "apiKey": key, "pin": quoted, "url": f"http://host/?k={key}"}
    try:
        with manager.run(params, network, batches) as run:
            for epoch in run.epochs(1):
                for inputs, labels in epoch.batches(batches):
                    epoch.track(network(inputs).sum(), network(inputs), labels)
            if lr > 0.1:
                raise ValueError(f"not {key}")
    except ValueError:
        pass
with start_run(network, batches, params={"lr": 1, "db_password": key}) as run:
    run.summary["score"] = 1
"""

_READERS = """
import sys
from runmanager.cli.main import run_command
sweep = sys.argv[1]
for words in (
    ["table", sweep, "--all"], ["table", sweep, "--format", "json"], ["compare", sweep], ["best", sweep],
    ["show", f"{sweep}/lr=0.1"], ["diff", f"{sweep}/lr=0.1", f"{sweep}/lr=0.2"], ["report", sweep, "--figures", "svg"],
    ["reproduce", f"{sweep}/lr=0.1"], ["watch", sweep, "--once"], ["ls"],
):
    run_command(words)
"""


@dataclass
class Search:
    """What was searched, and where a secret was found: `places` are files, and the outputs of commands."""

    files: int = 0
    outputs: int = 0
    places: list[str] = field(default_factory=list)

    def look_at(self, what: str, data: bytes) -> None:
        self.places += [f"{what}: {secret}" for secret in SECRETS if secret.encode() in data]

    def look_below(self, folder: Path) -> None:
        """Search the name and the bytes of every file below a folder."""
        for path in sorted(folder.rglob("*")):
            self.look_at(f"the name of {path}", os.fsencode(path))
            if path.is_file():
                self.files += 1
                self.look_at(str(path), path.read_bytes())


class _Commands:
    """Commands in a folder; what they print is searched."""

    def __init__(self, folder: Path, search: Search) -> None:
        self._folder = folder
        self._search = search

    def run(self, *words: str, status: int, given: str = "") -> str:
        """Run a Python command and return what it printed. Raises `RuntimeError` for another exit status."""
        done = subprocess.run(
            [sys.executable, *words],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:.", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "300"},
            input=given.encode(),
            capture_output=True,
            check=False,
            timeout=300,
        )
        printed = done.stdout + done.stderr
        self._search.outputs += 1
        self._search.look_at(f"the output of {words[:3]}", printed)
        if done.returncode != status:
            raise RuntimeError(f"{words[:4]} ended with {done.returncode}, not {status}: {printed.decode()}")
        return printed.decode()

    def sweep(self, *words: str, status: int, reads: str) -> None:
        """Run the sweep `reads`, its dry run before and after it, and the commands that read it."""
        self.run(*words, "--dry-run", status=0)
        self.run(*words, status=status)
        self.run(*words, "--dry-run", status=0)
        self.run("-c", _READERS, reads, status=0)


def search_programs(folder: Path) -> Search:
    """Run the built-in job, an application, a script and a custom loop with secrets in an empty folder."""
    search = Search()
    work = folder / "work"
    (work / "conf").mkdir(parents=True)
    for name, text in (("own.py", _MODEL), ("app.py", _APPLICATION), ("train.py", _SCRIPT), ("loop.py", _LOOP)):
        (work / name).write_text(text)
    (work / "conf" / "config.yaml").write_text(_APPLICATION_CONFIG)
    commands = _Commands(work, search)
    _built_in_job(commands)
    _application(commands)
    command_line = ("-c", "from runmanager.cli.main import main; main()", "sweep", "--name", "script")
    script = ("--scalar", r"score=score: (\d+)", "train.py", f"api-key='{_KEY}'", "lr=0.1,0.2")
    fixed = ("--", "--auth-token", _FIXED)
    commands.run(*command_line, "--dry-run", *script, *fixed, status=0)
    commands.run(*command_line, *script, *fixed, status=1)
    commands.run("-c", _READERS, "script", status=0)
    commands.run("loop.py", status=0, given=f"{_KEY}\n{_QUOTED}")
    commands.run("-c", _READERS, "loop", status=0)
    search.look_below(work)
    return search


def _built_in_job(commands: _Commands) -> None:
    tiny = ("dataset=fake", "dataset.size=64", "dataset.val_size=32", "batch_size=32", "epochs=1", "device=cpu")
    model = ("model=custom", "model._target_=own.Net", f"+model.api_key='{_KEY}'", "lr=0.1,0.2")
    words = ("-m", "runmanager", "-m", *tiny, *model)
    commands.sweep(*words, "name=built", status=0, reads="built")
    commands.run(*words, "name=failing", "+model.fails=true", status=1)
    commands.run(*words, "--save", "mine", status=2)
    commands.run(*words, "device=[", status=2)
    commands.run(*words, "hydra/launcher=basic", status=2)


def _application(commands: _Commands) -> None:
    words = ("app.py", "-m", "hydra/sweeper=runmanager", "lr=0.1,0.2", f"db.password='{_KEY}'")
    commands.run(*words, "hydra.sweeper.name=app", "hydra.sweeper.dry_run=true", status=0)
    commands.run(*words, "hydra.sweeper.name=app", status=1)
    commands.run(*words, "hydra.sweeper.name=app", status=1)
    commands.run("-c", _READERS, "app", status=0)
    commands.run(*words, "hydra.sweeper.name=other", "hydra/launcher=basic", status=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="the page whose row of secrets is written")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        search = search_programs(Path(folder))
    print(f"{search.files} files, {search.outputs} outputs, found: {search.places or 'none'}")
    if given.write is not None:
        what = "a job, an application, a script and a loop get secrets, and some fail; all they leave is searched"
        tried = f"{search.files} files, {search.outputs} outputs"
        write_row(
            given.write,
            "Secrets are",
            f"| Secrets are masked in all that is written | {what} | {tried} | {len(search.places)} |",
        )


if __name__ == "__main__":
    main()
