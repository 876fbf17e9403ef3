"""The end of a sweep: everything fits into the terminal, and the answers come last."""

import contextlib
import io
import re
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from benchmarks.stored_sweep import write_stored_sweep
from runmanager.app.display.final_summary import show_results
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.ownership import claim_run
from runmanager.records.storage.reader import read_record
from runmanager.records.storage.versioned_file import encode_record
from runmanager.records.sweep.sweep_record import SweepCommand, plan_cell, write_cells


def shown(folder: Path, *, num_runs: int, terminal: tuple[int, int] | None) -> list[str]:
    text = io.StringIO()
    width, height = terminal or (10_000, 25)
    console = Console(file=text, width=width, height=height, force_terminal=terminal is not None, color_system=None)
    with contextlib.chdir(folder):
        show_results(write_stored_sweep(Path("outputs/first"), num_runs=num_runs, num_epochs=8), console)
    return text.getvalue().splitlines()


@pytest.mark.parametrize("num_runs", [12, 40])
def test_the_end_fits_into_the_terminal(num_runs: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    lines, high, piped = (
        shown(tmp_path_factory.mktemp("end"), num_runs=num_runs, terminal=terminal)
        for terminal in ((80, 24), (80, 80), None)
    )
    assert len(lines) < 24 and max(map(len, lines)) <= 80
    assert lines[-1] == f"{num_runs} runs: {num_runs} finished."
    text = " ".join(" ".join(lines).split())
    assert re.search(rf"The first [35] of {num_runs} runs; `runmanager table first --all` shows all\.", text)
    assert "`runmanager table first` explains the columns, and has " in text
    assert "\n".join(lines).count("`runmanager table first`") == 1  # whole, so it can be copied
    for each in (high, piped):
        text = " ".join(" ".join(each).split())
        assert f"The first 10 of {num_runs} runs; `runmanager table first --all` shows all." in text
        assert re.search(r"`runmanager table first`( and `runmanager compare first`)? explains? the columns", text)
        assert "hold jointly" not in text and "Omitted" not in text and "\n[1]" not in "\n".join(each)
        assert each[-1] == lines[-1]


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (["no disk."], ["The run ended badly: no disk (`runmanager show bad/00000000` has the log and the error)."]),
        (["no disk"] * 2, ["Both runs ended badly: no disk (`runmanager show bad/00000000` has the log and"]),
        (["no disk"] * 3, ["All 3 runs ended badly: no disk (`runmanager show bad/00000000` has the log and"]),
        (
            ["no disk", "no net", "no net", "other"],
            [
                "2 of 4 runs ended badly: no net (`runmanager show bad/11111111`",
                "1 of 4 runs ended badly: no disk (`runmanager show bad/00000000`",
                "1 other run ended badly too.",
            ],
        ),
        (["no disk", ""], ["1 of 2 runs ended badly: no disk", "1 other run ended badly too."]),
        (["no disk", None], []),
    ],
)
def test_where_no_run_finished_each_cause_is_said_once_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: list[str | None], said: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = SweepPaths(Path("outputs/bad"))
    cells = []
    for number, message in enumerate(messages):
        config, digits = {"lr": number}, str(number) * 64
        status = Status.FINISHED if message is None else Status.FAILED
        name = f"lr={number}-{digits[:8]}"
        claim_run(
            sweep.run(name),
            RunRecord(name=name, signature=digits, status=status, config=config, message=message or ""),
        )
        cells.append(plan_cell(digits, name, config))
    write_cells(sweep, cells, SweepCommand(("x",), axes={"lr": list(range(len(messages)))}))
    text = io.StringIO()
    show_results(sweep, Console(file=text, width=10_000))
    found = [line for line in text.getvalue().splitlines() if "ended badly" in line]
    assert [line[: len(start)] for line, start in zip(found, said, strict=True)] == said


def test_finished_runs_whose_epochs_are_lost_are_named_before_the_counts(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        sweep = write_stored_sweep(Path("outputs/first"), num_runs=2, num_epochs=8)
        (first, _) = sorted(sweep.runs.iterdir())
        lines = (first / "epochs.jsonl").read_bytes().splitlines(keepends=True)
        record = read_record(RunPaths(first))
        (first / "run.json").write_bytes(encode_record(msgspec.structs.replace(record, num_records=len(lines))))
        (first / "epochs.jsonl").write_bytes(b"".join(lines[:-1]))
        text = io.StringIO()
        show_results(sweep, Console(file=text, width=10_000))
    label = first.name.rpartition("-")[0]
    assert text.getvalue().splitlines()[-2:] == [
        f"1 finished run is damaged: {label} (`runmanager table first` says how).",
        "2 runs: 2 finished.",
    ]
