"""Tests of `runmanager demo`."""

from collections.abc import Callable
from pathlib import Path

from ..conftest import Application


def test_demo_runs_its_preset_in_a_fresh_folder(command: Callable, application: Application) -> None:
    command("demo")
    command("demo", "epochs=1", "name=mine", "output_root=there")
    preset, name, root, *rest = application.calls[0]
    assert (preset, root, rest) == ("experiment=digits_quick", "output_root=outputs", ["--yes"])
    assert name.startswith("name=demo-")
    assert application.calls[1] == ["experiment=digits_quick", "--yes", "epochs=1", "name=mine", "output_root=there"]


def test_demo_prints_where_its_files_are(process: Callable, tmp_path: Path) -> None:
    done = process("demo", "name=mine", "epochs=1", "dataset.size=2000", "dataset.val_size=200", "device=cpu")
    assert done.status == 0, done.err
    for expected in ("outputs/mine/report.html", "runmanager table mine", "runmanager tensorboard mine"):
        assert expected in done.out
    for name in ("sweep.json", "results.csv", "comparison.csv", "report.html"):
        assert (tmp_path / "outputs" / "mine" / name).exists()
