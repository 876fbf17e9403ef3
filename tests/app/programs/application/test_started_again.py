"""A task that starts programs in its cell: its own again, which is the cell's further process, and sweeps of others."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runmanager.records.files.paths import RunPaths
from runmanager.records.storage.reader import read_sweep

from ....processes import TIMEOUT_SECONDS
from .conftest import Application

# Each process of the task leaves a line in seen.jsonl; `level` counts from the cell's own, whose `starts` have the
# exit statuses of what it has started.
AGAIN = """
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig

MAIN = "import sys; from runmanager.cli.main import run_command; sys.exit(run_command(sys.argv[1:]))"
HERE = Path(__file__).resolve().parent
SWEEPER = ["-m", "hydra/sweeper=runmanager"]
LIGHTNING = ['hydra.run.dir="elsewhere"', "hydra.job.name=train_ddp_process_1", "hydra.output_subdir=null"]


def start(*words, program=None, cwd=None, **variables):
    command = [sys.executable, *(program or [str(HERE / "again.py")]), *words]
    level = {"LEVEL": str(int(os.environ.get("LEVEL", "0")) + 1)}
    done = subprocess.run(command, env={**os.environ, **level, **variables}, cwd=cwd, capture_output=True, text=True)
    return [done.returncode, done.stderr[-2000:]]


def again(*further, **options):
    return start(*sys.argv[1:], *further, **options)


def execute(cfg):
    if "EXECUTED" not in os.environ:
        os.environ["EXECUTED"] = "1"
        os.execv(sys.executable, [sys.executable, str(HERE / "again.py"), *sys.argv[1:]])
    if cfg.seed == 2:
        raise ValueError("an unlucky seed")


def sweep_script(*options):
    return start("sweep", *options, "script.py", "lr=1", program=["-c", MAIN])


WAYS = {
    "none": lambda cfg: [],
    "same": lambda cfg: [again()],
    "lightning": lambda cfg: [again(*LIGHTNING, LOCAL_RANK="1")],
    "ranks": lambda cfg: [again(RANK="0"), start(*SWEEPER, "way=none", LOCAL_RANK="1"), start(RANK="2")],
    "fails": lambda cfg: [again(FAILS="yes")],
    "elsewhere": lambda cfg: [again(cwd="conf")],
    "levels": lambda cfg: [again(LEVELS="yes")],
    "executes": execute,
    "other": lambda cfg: [start(*SWEEPER, "hydra.sweeper.name=nested", "way=none", "seed=1,2")],
    "unnamed": lambda cfg: [start(*SWEEPER, "way=none", "hydra.sweeper.output_root=others")],
    "parent": lambda cfg: [start(*SWEEPER, "hydra.sweeper.name=first", "way=none")],
    "script": lambda cfg: [sweep_script("--name", "scripts"), sweep_script("--name", "first")],
    "within": lambda cfg: [start(*SWEEPER, "hydra.sweeper.name=within", "way=parent")],
}


@hydra.main(version_base="1.3", config_path="conf", config_name="again")
def main(cfg):
    level = int(os.environ.get("LEVEL", "0"))
    ways = {**WAYS, "levels": WAYS["levels"] if level < 2 else WAYS["none"]}
    starts = ways[cfg.way](cfg) if level == 0 or "LEVELS" in os.environ or cfg.way == "parent" else []
    settings = HydraConfig.get()
    logging.getLogger(__name__).info("logged by level %s", level)
    line = {
        "level": level,
        "way": cfg.way,
        "pid": os.getpid(),
        "settings": [cfg.seed, cfg.text, cfg.api_key, cfg.lr, settings.runtime.cwd, settings.job.num],
        "output": settings.runtime.output_dir,
        "starts": starts,
        "local_rank": os.environ.get("LOCAL_RANK"),
        "rank": os.environ.get("RANK"),
    }
    with (HERE / "seen.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\\n")
    if "FAILS" in os.environ:
        raise ValueError("a further process fails")
    return {"score": cfg.lr * (level + 1)}


if __name__ == "__main__":
    main()
"""
TEXT = """it's "ünïcode", {a: [b}, = and ${not}"""
SETTINGS = r"""text='it\'s "ünïcode", {a: [b}, = and \${not}'"""
ONCE = ("same", "lightning", "elsewhere", "fails")


@pytest.fixture
def started_again(application: Application, write_script: Callable[[str, str], None]) -> Application:
    write_script("again.py", AGAIN)
    write_script("conf/again.yaml", "way: none\nseed: 1\nlr: 0.5\ntext: plain\napi_key: null\n")
    write_script("script.py", "import sys\nprint(sys.argv)\n")
    return application


def seen(application: Application) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (application.folder / "seen.jsonl").read_text().splitlines()]


def files(run: RunPaths) -> set[str]:
    """The files of a run that its own process writes for good."""
    return {path.relative_to(run.root).as_posix() for path in run.root.rglob("*") if path.is_file()}


def test_the_same_program_runs_the_task_of_its_cell(started_again: Application) -> None:
    ways = ("none", *ONCE, "ranks", "levels", "executes")
    words = (SETTINGS, "api_key=sesame-open", f"way={','.join(ways)}", "hydra.launcher.workers=2")
    done = started_again.run("hydra.sweeper.name=first", *words, script="again.py", LOCAL_RANK="0", RANK="0")
    assert done.status == 0, done.out + done.err
    records = started_again.by_setting("first", "way")
    ends = {way: (str(each.status), (each.summary or {}).get("score")) for way, each in records.items()}
    assert ends == dict.fromkeys(ways, ("finished", 0.5))
    lines = seen(started_again)
    by_way = {way: [line for line in lines if line["way"] == way] for way in ways}

    # What a further process sees is the configuration of its cell, whatever its own words are.
    num_further = {"none": 0, **dict.fromkeys(ONCE, 1), "ranks": 3, "levels": 2, "executes": 0}
    assert {way: len(each) - 1 for way, each in by_way.items()} == num_further
    for way in num_further:
        own = next(line for line in by_way[way] if line["level"] == 0)
        assert own["settings"][:4] == [1, TEXT, "sesame-open", 0.5] and own["output"] == str(
            started_again.sweep("first").run(records[way].name).root
        )
        assert all((line["settings"], line["output"]) == (own["settings"], own["output"]) for line in by_way[way])
        assert [status for status, _ in own["starts"] or []] == [1 if way == "fails" else 0] * len(own["starts"] or [])
    assert by_way["executes"][0]["pid"] == records["executes"].owner.pid, "the cell's own process, replaced"

    # It leaves the files of its cell alone; its log has a name of its own.
    plain, ranked = (started_again.sweep("first").run(records[way].name) for way in ("none", "ranks"))
    (pid,) = (line["pid"] for line in by_way["ranks"] if line["level"] and line["local_rank"] == line["rank"])
    further = {f"again_process{pid}.log", "again_rank1.log", "again_rank2.log"}
    assert files(ranked) - files(plain) == further, "the caller's own rank 0 does not tell them apart"
    lightning = started_again.sweep("first").run(records["lightning"].name)
    assert files(lightning) - files(plain) == {"train_ddp_process_1_rank1.log"}
    for way in num_further:
        run = started_again.sweep("first").run(records[way].name)
        assert (run.root / "again.log").read_text().count("logged by level") == 1
        assert f"way: {way}" in (run.root / ".hydra" / "config.yaml").read_text()

    assert [path.name for path in (started_again.folder / "outputs").iterdir()] == ["first"]
    assert len(started_again.plan("first")["cells"]) == len(ways)


def test_other_sweeps_in_a_cell_are_independent_but_for_its_own(started_again: Application) -> None:
    ways = ("other", "unnamed", "parent", "script", "within")
    words = ("hydra.sweeper.name=first", f"way={','.join(ways)}", "hydra.launcher.workers=2")
    done = started_again.run(*words, script="again.py", LOCAL_RANK="0", RANK="0")
    assert done.status == 0, done.out + done.err
    lines = seen(started_again)
    assert {path.name for path in (started_again.folder / "outputs").iterdir()} == {
        *("first", "nested", "scripts", "within")
    }
    assert len(started_again.records("nested")) == 2 and len(started_again.plan("first")["cells"]) == len(ways)
    assert len(list((started_again.folder / "others").iterdir())) == 1
    starts = {line["way"]: line["starts"] for line in lines if line["level"] == 0}
    for status, error in (starts["parent"][0], starts["script"][1]):
        assert status == 2 and error.startswith("error: ") and "outputs/first" in error and error.count("\n") == 1
    assert [starts[way][0][0] for way in ("other", "unnamed", "script", "within")] == [0, 0, 0, 0]
    inner = next(line for line in lines if line["way"] == "parent" and "within" in line["output"])
    assert inner["starts"][0][0] == 2, "the sweep around the one that it runs in would wait for it too"
    nested = [line for line in lines if "nested" in line["output"]]
    assert all(line["local_rank"] is None for line in nested), "ranks of the cell around are not those of its cells"


LAUNCHERS = {
    "basic": ("hydra/launcher=basic",),
    "joblib": ("hydra/launcher=joblib", "hydra.launcher.n_jobs=1"),
    "chdir": ("hydra.job.chdir=true",),
    "ranks": ("hydra.launcher.processes_per_run=2",),
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_cell_is_started_again_under_every_launcher(started_again: Application, launcher: str) -> None:
    ways = {"joblib": ("same", "none"), "ranks": ("executes", "same")}.get(launcher, ("executes", "same", "none"))
    seeds = (1, 2) if launcher in ("basic", "chdir") else (1,)
    words = (*LAUNCHERS[launcher], f"seed={','.join(map(str, seeds))}", f"way={','.join(ways)}")
    done = started_again.run("hydra.sweeper.name=first", *words, script="again.py")
    assert done.status == len(seeds) - 1, done.out + done.err
    records = {(each.settings["way"], each.settings["seed"]): each for each in started_again.records("first")}
    assert records.keys() == {(way, seed) for way in ways for seed in seeds}
    unlucky = records.pop(("executes", 2), None)
    assert unlucky is None or (str(unlucky.status), unlucky.message) == ("failed", "ValueError: an unlucky seed")
    for record in records.values():
        assert (str(record.status), record.summary, record.attempt) == ("finished", {"score": 0.5}, 1)
    lines = seen(started_again)
    ranks = 2 if launcher == "ranks" else 1
    assert [line["level"] for line in lines].count(0) == ranks * len(records)
    further = [line for line in lines if line["level"] == 1]
    assert len(further) == ranks * len(seeds) and {line["way"] for line in further} == {"same"}
    assert {line["settings"][4] for line in lines} == {str(started_again.folder)}
    assert {line["output"] for line in lines} == {
        str(started_again.sweep("first").run(each.name).root) for each in records.values()
    }
    assert [path.name for path in (started_again.folder / "outputs").iterdir()] == ["first"]


LOGGING = """
import os
import subprocess
import sys

import hydra
import torch

import runmanager

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def again(*torchrun, **variables):
    command = [sys.executable, *torchrun, *sys.argv]
    subprocess.run(command, env={**os.environ, "FURTHER": "yes", **variables}, check=True)


@hydra.main(version_base="1.3", config_path="conf", config_name="again")
def main(cfg):
    is_own = "FURTHER" not in os.environ
    if is_own and cfg.way == "torchrun":
        return again(*TORCHRUN)
    if is_own and cfg.way == "beside":
        again()
    if cfg.way == "torchrun":
        torch.distributed.init_process_group("gloo")
    network = torch.nn.Linear(1, 1)
    with runmanager.start_run(network) as run:
        if is_own and cfg.way == "beside":
            again(LOCAL_RANK="1", WORLD_SIZE="2")
        for epoch in run.epochs(2):
            for batch in epoch.batches(torch.ones(4, 1).split(2)):
                epoch.track(network(batch).mean(), samples=len(batch))
        run.summary["further"] = float(not is_own)
    with open("trained.txt", "a") as file:
        file.write(f"{cfg.way} {epoch.number}\\n")


if __name__ == "__main__":
    main()
"""


def test_what_further_processes_log_is_not_the_cells_unless_they_are_its_ranks(
    started_again: Application, write_script: Callable[[str, str], None]
) -> None:
    write_script("logging_again.py", LOGGING)
    done = started_again.run("hydra.sweeper.name=logs", "way=beside,torchrun", script="logging_again.py")
    assert done.status == 0, done.out + done.err
    runs = {run.record.config["way"]: run for run in read_sweep(started_again.sweep("logs")).runs}
    assert {way: [epoch.samples for epoch in run.epochs] for way, run in runs.items()} == {
        **{"beside": [4, 4], "torchrun": [8, 8]}
    }
    assert {way: (run.record.summary or {})["further"] for way, run in runs.items()} == {"beside": 0, "torchrun": 1}
    assert runs["torchrun"].record.world_size == 2 and runs["beside"].record.deviations == ()
    assert runs["beside"].paths.log.read_text().count("what it logs is not recorded") == 1, "said where none expects it"
    trained = (started_again.folder / "trained.txt").read_text().splitlines()
    assert sorted(trained) == [*["beside 2"] * 3, *["torchrun 2"] * 2], "further processes train too"


def test_a_further_process_that_starts_after_its_cell_is_refused(started_again: Application) -> None:
    environment = [f"RUNMANAGER_{name}" for name in ("CELL", "RUN", "ATTEMPT", "SWEEPS")]
    text = (started_again.folder / "again.py").read_text()
    kept = f"    Path('kept.json').write_text(json.dumps({{name: os.environ[name] for name in {environment}}}))\n"
    text = text.replace("    level = int", f"{kept}    level = int", 1)
    (started_again.folder / "again.py").write_text(text)
    words = ("hydra.sweeper.name=over", "way=none")
    assert started_again.run(*words, script="again.py").status == 0
    before = {path: path.stat().st_mtime_ns for path in (started_again.folder / "outputs").rglob("*")}
    late = started_again.run(*words, script="again.py", **json.loads((started_again.folder / "kept.json").read_text()))
    assert late.status == 2 and late.err.startswith("error: A further process of a cell must start while the cell runs")
    assert {path: path.stat().st_mtime_ns for path in (started_again.folder / "outputs").rglob("*")} == before


MODEL = """
import os
import subprocess
import sys
from pathlib import Path

import torch


class Net(torch.nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        if "RUNMANAGER_CELL" in os.environ:
            again = subprocess.run([sys.executable, *sys.argv], capture_output=True, text=True)
            Path("again.txt").write_text(f"{again.returncode} {again.stderr}")
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(num_classes))

    def forward(self, images):
        return self.layers(images)
"""


def test_the_built_in_job_refuses_its_own_command_in_its_cell(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(MODEL)
    data = ("dataset=fake", "dataset.size=64", "dataset.val_size=32", "tensorboard.enabled=false", "device=cpu")
    command = [sys.executable, "-m", "runmanager", "-m", *data, "model=custom", "model._target_=own.Net", "epochs=1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    status, _, error = (tmp_path / "again.txt").read_text().partition(" ")
    assert status == "2" and error.startswith("error: A cell of the built-in job must") and error.count("\n") == 1
    assert len(list((tmp_path / "outputs").iterdir())) == 1, "an unnamed sweep in its own cell would begin others"
