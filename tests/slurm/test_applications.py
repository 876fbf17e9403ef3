"""A Hydra application that never imports this package, on a real Slurm."""

import json
from pathlib import Path

import pytest
from loopback import Slurm

from ..app.programs.application.conftest import CONFIG, MODELS, PARTS, UNGUARDED, Application
from ..app.programs.application.test_ranked_application import RANKED
from ..app.programs.application.test_started_again import AGAIN, seen

SLURM = ("hydra/launcher=runmanager_slurm", "hydra.launcher.poll_seconds=0.3", "hydra.launcher.time=10")
WORDS = (*SLURM, "hydra.sweeper.name=cluster", "hydra.sweeper.order=grid", "way=fine,raises,is killed")


def test_jobs_of_an_array_tell_every_end_and_a_rerun_does_what_is_missing(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(UNGUARDED)
    (tmp_path / "parts.py").write_text(PARTS)
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "config.yaml").write_text(CONFIG)
    (tmp_path / "conf" / "model" / "small.yaml").write_text(MODELS["small"])
    application = Application(tmp_path)
    done = application.run(*WORDS, **slurm.variables)
    assert done.status == 1, done.err
    records = application.by_setting("cluster", "way")
    ends = {way: (str(each.status), str(each.reason or "")) for way, each in records.items()}
    assert ends == {"fine": ("finished", ""), "raises": ("failed", "exception"), "is killed": ("killed", "signal")}
    assert records["fine"].summary == {"score": 0.05, "loss": 0.1}
    assert "printed by the task" in application.sweep("cluster").run(records["fine"].name).log.read_text()
    (tmp_path / "calm").touch()
    before = len(application.started())
    assert application.run(*WORDS, **slurm.variables).status == 0
    assert sorted(application.started()[before:]) == ["0.1 is killed 2", "0.1 raises 2"]


@pytest.mark.release
def test_the_ranks_of_a_cell_are_one_run_in_one_job(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / "ranked.py").write_text(RANKED)
    (tmp_path / "ranked.yaml").write_text("lr: 0.1\nway: fine\n")
    words = (*SLURM, "hydra.sweeper.name=ranks", "hydra.launcher.processes_per_run=2", "lr=0.1")
    application = Application(tmp_path)
    done = application.run(*words, script="ranked.py", **slurm.variables)
    assert done.status == 0, done.out + done.err
    (record,) = application.by_setting("ranks", "lr").values()
    assert (str(record.status), record.world_size, record.summary) == ("finished", 2, {"score": 0.1})
    lines = application.sweep("ranks").run(record.name).epochs.read_text().splitlines()
    assert [json.loads(line)["samples"] for line in lines] == [24, 24], "what both have trained"


@pytest.mark.release
def test_a_cell_may_start_its_program_again_in_its_job(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / "again.py").write_text(AGAIN)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "again.yaml").write_text("way: none\nseed: 1\nlr: 0.5\ntext: plain\napi_key: null\n")
    words = (*SLURM, "hydra.sweeper.name=again", "hydra.sweeper.order=grid", "way=same,executes")
    application = Application(tmp_path)
    done = application.run(*words, script="again.py", **slurm.variables)
    assert done.status == 0, done.out + done.err
    assert [(str(each.status), each.summary) for each in application.records("again")] == [
        ("finished", {"score": 0.5})
    ] * 2
    lines = seen(application)
    assert sorted((line["way"], line["level"]) for line in lines) == [("executes", 0), ("same", 0), ("same", 1)]
