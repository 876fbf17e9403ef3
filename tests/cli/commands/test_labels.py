"""Tests of `runmanager tag` and `runmanager note`, and of where labels are shown."""

import json
from collections.abc import Callable

from runmanager.records.files.paths import SweepPaths

from ..conftest import rows_of, write_sweep


def test_labels_of_sweeps_and_runs_are_shown_everywhere(command: Callable, sweep: SweepPaths) -> None:
    (cpu,) = sweep.runs.glob("batch_size=1000,device=cpu*")
    before = command("table", "grid", "--format", "csv").out
    assert "tags" not in before
    assert command("tag", "grid", "paper", "base").out == "outputs/grid: tags paper, base; no note\n"
    assert command("tag", f"grid/{cpu.name[:26]}", "odd", "odd").status == 0
    assert command("note", str(cpu), "the fan was <loud>").status == 0
    assert command("note", "grid", "first try").status == 0
    stored = json.loads((sweep.root / "labels.json").read_text())
    assert (stored["tags"], stored["note"]) == (["paper", "base"], "first try")
    assert stored["runs"] == {cpu.name: {"tags": ["odd"], "note": "the fan was <loud>"}}
    (listed,) = rows_of(command("ls", "--where", "paper in tags", "--format", "csv").out)
    assert (listed["tags"], listed["note"]) == ("paper, base", "first try")
    rows = {row["run"]: row for row in rows_of(command("table", "grid", "--format", "csv").out)}
    assert list(rows[cpu.name])[-2:] == ["tags", "note"]
    assert (rows[cpu.name]["tags"], rows[cpu.name]["note"]) == ("odd", "the fan was <loud>")
    assert [row["tags"] for name, row in rows.items() if name != cpu.name] == [""] * 3
    text = command("table", "grid", "--where", "tags==odd").out
    assert "odd" in text and "Tags of the sweep: paper, base." in text and "Note on the sweep: first try" in text
    assert command("report", "grid").status == 0
    page = sweep.report.read_text()
    assert "the fan was &lt;loud&gt;" in page and "Tags of the sweep: paper, base." in page
    command("tag", "grid", "--remove", "paper")
    command("tag", str(cpu), "--remove", "odd")
    command("note", str(cpu), "")
    command("note", "grid", "")
    assert json.loads((sweep.root / "labels.json").read_text()) == {
        "schema_version": stored["schema_version"],
        "tags": ["base"],
        "note": "",
        "runs": {},
    }
    assert command("table", "grid", "--format", "csv").out == before


def test_labels_in_a_table_of_sweeps_are_those_of_the_sweep_and_the_run(command: Callable, sweep: SweepPaths) -> None:
    other = write_sweep(sweep.root.parent / "other", batch_sizes=(10,))
    (run,) = other.runs.glob("*cpu*")
    command("tag", "other", "paper")
    command("tag", f"other/{run.name}", "odd")
    rows = rows_of(command("table", "grid", "other", "--format", "csv").out)
    assert {(row["sweep"], row["device"]): row["tags"] for row in rows} == {
        ("other", "cpu"): "paper, odd",
        ("other", "cuda"): "paper",
        ("grid", "cpu"): "",
        ("grid", "cuda"): "",
    }


def test_damaged_labels_are_named_and_never_overwritten(command: Callable, sweep: SweepPaths) -> None:
    sweep.labels.write_text("{")
    done = command("table", "grid", "--format", "csv")
    assert (done.status, len(rows_of(done.out))) == (0, 4)
    assert "labels.json is damaged" in done.err
    refused = command("tag", "grid", "x")
    assert (refused.status, refused.out, sweep.labels.read_text()) == (2, "", "{")
    assert "labels.json is damaged" in refused.err
