"""Tests of `runmanager report`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runmanager.records.files.paths import SweepPaths

from ..conftest import write_sweep


def test_report_is_rebuilt(command: Callable, sweep: SweepPaths) -> None:
    done = command("report", "grid")
    report, said = done.out.splitlines()
    assert report == "outputs/grid/report.html"
    named = (table.split(", ") for table in said.removesuffix(".").partition(": ")[2].split("; "))
    files = {f"{first.partition('.')[0]}{kind}" for first, *kinds in named for kind in (".csv", *kinds)}
    assert files == {path.name for path in sweep.root.iterdir() if path.stem in ("results", "comparison", "epochs")}
    assert "<html" in sweep.report.read_text()
    assert sweep.results("csv").exists()


@pytest.mark.parametrize(("given", "kinds"), [("svg", ["svg"]), ("both", ["png", "svg"])])
def test_report_writes_figure_files(command: Callable, sweep: SweepPaths, given: str, kinds: list[str]) -> None:
    done = command("report", "grid", "--figures", given)
    files = sorted(path.name for path in sweep.figures.iterdir())
    assert {f"{name}.{kind}" for name in ("throughput", "curves") for kind in kinds} <= set(files)
    assert {name.rpartition(".")[2] for name in files} == set(kinds)
    (line,) = [line for line in done.out.splitlines() if line.startswith("In outputs/grid/figures: ")]
    assert sorted(line.removesuffix(".").partition(": ")[2].split(", ")) == files


def test_report_without_figures_says_so(command: Callable, tmp_path: Path) -> None:
    empty = write_sweep(tmp_path / "empty", num_epochs=0)
    done = command("report", str(empty.root), "--figures", "png")
    assert done.status == 0
    assert done.out.endswith("No figures: no run has measured anything yet.\n")
    assert not empty.figures.exists()


def test_several_sweeps_have_a_report_each_and_a_page_of_all_runs(command: Callable, sweep: SweepPaths) -> None:
    other = write_sweep(sweep.root.parent / "other", batch_sizes=(10,))
    done = command("report", "grid", "other")
    assert (done.status, done.err) == (0, "")
    assert [line.partition(":")[0] for line in done.out.splitlines() if "html" in line.partition(":")[0]] == [
        "outputs/grid/report.html",
        "outputs/other/report.html",
        "outputs/grid+other.html",
    ]
    page = (sweep.root.parent / "grid+other.html").read_text()
    assert "<title>Results of grid, other</title>" in page
    assert (page.count(">finished</td>"), page.count(">skipped</td>")) == (3, 3)
    assert sweep.report.exists() and other.report.exists()


def test_report_is_opened_and_over_ssh_copied(
    command: Callable, sweep: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda uri: opened.append(uri) or True)
    assert command("report", "grid", "--open").out.endswith("outputs/grid/report.html is open in the browser.\n")
    assert opened == [sweep.report.as_uri()]
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.9 50000 10.0.0.5 2222")
    monkeypatch.setattr("getpass.getuser", lambda: "me")
    line = command("report", "grid", "--open").out.splitlines()[-1]
    assert f"scp -P 2222 me@10.0.0.5:{sweep.report} . " in line and opened == [sweep.report.as_uri()]
