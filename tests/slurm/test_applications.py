"""A Hydra application that never imports this package, on a real Slurm."""

from pathlib import Path

from loopback import Slurm

from ..app.programs.application.conftest import APPLICATION, CONFIG, MODELS, PARTS, Application

WORDS = (
    "hydra/launcher=runmanager_slurm",
    "hydra.launcher.poll_seconds=0.3",
    "hydra.launcher.time=10",
    "hydra.sweeper.name=cluster",
    "way=fine,raises,is killed",
)


def test_jobs_of_an_array_tell_every_end_and_a_rerun_does_what_is_missing(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(APPLICATION)
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
