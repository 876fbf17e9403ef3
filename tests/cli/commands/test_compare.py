"""Tests of `runmanager compare`."""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import Environment, EpochRecord, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.settings.grid import expand_grid
from runmanager.records.settings.signature import short_signature, signature
from runmanager.records.storage.ownership import claim_run
from runmanager.records.sweep.sweep_record import SweepCommand, plan_cell, write_cells

from ...results.conftest import SweepMaker, timed_epochs
from ..conftest import rows_of, write_sweep


def test_latex_and_html_comparisons_have_numbered_reasons(command: Callable, sweep: SweepPaths) -> None:
    latex = command("compare", "grid", "--axis", "batch_size", "--format", "latex").out
    assert latex.count("tabular") == 2
    (number,) = {line.split("&")[-1].strip(" \\") for line in latex.splitlines() if "not measured &" in line}
    assert f"\n% {number} cuda" in latex or f"\n% {number} " in latex
    html = command("compare", "grid", "--axis", "batch_size", "--format", "html").out
    assert "<title>Comparison of grid</title>" in html
    assert number in html


def test_a_comparison_prints_its_answer_and_reasons(command: Callable, sweep: SweepPaths) -> None:
    text = command("compare", "grid").out
    assert "2 pairs of cuda and cpu are not measured; --all shows them." in " ".join(text.split())
    assert "cuda and cpu could not be compared: cuda: skipped (device_unavailable)." in text
    assert "4 runs: 2 finished, 2 skipped." in text
    assert not re.search(r"not measured +\[", text), "no row"
    every = command("compare", "grid", "--all").out
    assert len(re.findall(r"not measured +\[", every)) == 2 and "--all shows" not in every
    other = command("compare", "grid", "--axis", "batch_size").out
    assert re.search(r"\n1 pair of batch_size=\d+ and batch_size=\d+ is not measured; --all shows it\.", other)
    assert not re.search(r"not measured +\[", other), "no row for the device that is missing"


@pytest.mark.parametrize("others", [3, 18])
def test_many_values_without_a_comparison_have_one_line(
    command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    monkeypatch.chdir(tmp_path)
    made = SweepMaker(tmp_path / "search")
    cells = [{"lr": 0.1 / number, "device": "cpu", "seed": 0} for number in range(1, others + 2)]
    made.plan(*cells)
    for cell in cells:
        made.run(cell, timed_epochs([9.0, 1.0]))
    text = command("compare", "search", "--axis", "lr").out
    assert text.count("not measured") == 1 and f"{others} pairs are not measured; --all shows them." in text
    if others > 5:
        assert text.count("could not be compared") == 1
        last = f", and {others - 5} more could not be compared with lr=0.1; `compare --all` shows why."
        assert last in " ".join(text.split())
    every = command("compare", "search", "--axis", "lr", "--all").out
    assert len(re.findall(r"not measured +\[", every)) == others and "too few epochs" in every


def test_comparison_along_another_axis(command: Callable, sweep: SweepPaths) -> None:
    rows = rows_of(command("compare", "grid", "--axis", "batch_size", "--format", "csv").out)
    (row,) = [row for row in rows if row["device"] == "cpu"]
    assert (row["baseline"], row["candidate"], row["speedup"], row["verdict"]) == ("1000", "100", "10.0", "faster")
    turned = rows_of(command("compare", "grid", "--axis", "batch_size", "--baseline", "100", "--format", "csv").out)
    assert [row["verdict"] for row in turned if row["device"] == "cpu"] == ["slower"]


def test_a_condition_filters_pairs_and_leaves_their_intervals(command: Callable, sweep: SweepPaths) -> None:
    words = ["compare", "grid", "--axis", "any", "--format", "csv"]
    every = rows_of(command(*words).out)
    fast = rows_of(command(*words, "--where", "verdict==faster and candidate==100").out)
    assert fast == [row for row in every if row["verdict"] == "faster"] and 0 < len(fast) < len(every)
    text = " ".join(command(*words[:-2], "--where", "axis=='batch_size' and device==cpu").out.split())
    assert f"1 of {len(every)} pairs matches axis=='batch_size' and device==cpu." in text
    assert "batch_size=100 is 10.0 times as fast as batch_size=1000 at device=cpu" in text
    assert "cuda and cpu" not in text
    none = command(*words, "--where", "speedup>1000")
    assert rows_of(none.out) == [] and f"0 of {len(every)} pairs match speedup>1000. Here speedup is" in none.err
    refused = command(*words, "--where", "sped>2")
    assert refused.status == 2 and "did you mean 'speedup'?" in refused.err


def test_drift_and_margin_set_the_verdict(command: Callable, tmp_path: Path) -> None:
    write_sweep(tmp_path / "s", batch_sizes=(1000, 600))
    words = ["compare", str(tmp_path / "s"), "--axis", "batch_size", "--baseline", "600", "--format", "json"]
    verdicts = [
        next(row["verdict"] for row in json.loads(command(*words, *more).out) if row["device"] == "cpu")
        for more in (["--drift", "0"], ["--drift", "0.5"], ["--drift", "0.5", "--margin", "0.99"])
    ]
    assert verdicts == ["slower", "inconclusive", "no difference"]


def test_comparison_by_another_metric_and_along_any_axis(command: Callable, sweep: SweepPaths) -> None:
    words = ["compare", "grid", "--axis", "any", "--metric", "epoch_seconds", "--format", "csv"]
    rows = rows_of(command(*words).out)
    assert {row["axis"] for row in rows} == {"batch_size", "device"}
    assert {row["metric"] for row in rows} == {"epoch_seconds"}
    (row,) = [row for row in rows if row["device"] == "cpu"]
    assert (row["baseline_value"], row["candidate_value"], row["speedup"]) == ("1.0", "0.1", "10.0")
    text = command(*words[:-2]).out
    assert "batch_size=100 is 10.0 times as fast as batch_size=1000 by epoch_seconds" in " ".join(text.split())


def test_a_requested_crossover_is_answered(command: Callable, sweep: SweepPaths) -> None:
    for format_ in ("text", "markdown"):
        out = command("compare", "grid", "--crossover", "batch_size", "--format", format_).out
        answer = "No crossover along batch_size: no two sides were both measured at two of its values."
        assert " ".join(out.strip().rpartition("\n\n")[2].split()) == answer, "last and alone"


def test_bottlenecks_are_printed_below_the_comparison(command: Callable, sweep: SweepPaths) -> None:
    for path in sweep.runs.glob("*/epochs.jsonl"):
        epochs = [msgspec.json.decode(line, type=EpochRecord) for line in path.read_bytes().splitlines()]
        slow = [msgspec.structs.replace(epoch, data_seconds=0.75 * (epoch.epoch_seconds or 0)) for epoch in epochs]
        path.write_bytes(b"".join(msgspec.json.encode(epoch) + b"\n" for epoch in slow))
    found = " ".join(command("compare", "grid").out.split())
    assert "cpu (input): 75% of the training epoch waits for data (" in found
    assert "at most 4.00 times as fast in training, and so at most " in found
    assert "waits for data (" in command("compare", "grid", "--format", "markdown").out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--axis", "devise"], "`--axis` must be a setting of the runs, got 'devise'; did you mean 'device'?"),
        (["--baseline", "mps"], "`--baseline` must be a value of 'device', got 'mps'; its values are cpu, cuda."),
        (["--drift", "2"], "`--drift` must be at least 0 and below 1, got 2.0; 0.1 means 10%."),
        (["--format", "excel"], "format"),
        (["--metric", "epoch_secs"], "did you mean 'epoch_seconds'"),
        (["--axis", "any", "--baseline", "cpu"], "name the axis"),
        (["--crossover", "lr", "--format", "csv"], "a format that has sentences"),
        (["--crossover", "device"], "that is not compared itself"),
    ],
)
def test_an_invalid_comparison_is_rejected(
    command: Callable, sweep: SweepPaths, words: list[str], expected: str
) -> None:
    done = command("compare", "grid", *words)
    assert (done.status, done.out) == (2, "")
    assert expected in done.err


def test_without_anything_to_compare_no_table_is_printed(command: Callable, sweep: SweepPaths) -> None:
    text = command("compare", "grid", "--axis", "num_workers").out
    assert "Nothing to compare" in text.splitlines()[0]
    assert "speedup" not in text


def write_script_sweep(
    root: Path, *, seeds: int, lr: Sequence[float] = (0.1, 0.2), widths: Sequence[int] = (8, 16), samples: int = 0
) -> SweepPaths:
    """Write a sweep over two settings, of a script that has no device and counts `samples`."""
    paths, cells = SweepPaths(root / "outputs" / "two"), []
    axes = {"lr": list(lr), "width": list(widths), "seed": list(range(seeds))}
    for params in expand_grid(**axes):
        config = {"lr": params.lr, "width": params.width, "seed": params.seed}
        signed = signature(config)
        name = f"run-{short_signature(signed)}"
        cells.append(plan_cell(signed, name, config))
        run = claim_run(
            paths.run(name),
            RunRecord(
                name=name,
                signature=signed,
                status=Status.FINISHED,
                config=config,
                started_at="2026-11-01T10:00:00+00:00",
                owner=ProcessIdentity.current(),
                environment=Environment(host="here"),
            ),
        )
        noise = (params.seed * 7 + params.width + int(10 * params.lr)) % 5 / 1000
        run.append(EpochRecord(epoch=1, val_loss=params.width / 100 + noise, epoch_seconds=1.0, samples=samples))
        run.close()
    write_cells(paths, cells, SweepCommand(["runmanager", "sweep"], axes=axes))
    return paths


def test_without_an_axis_settings_that_have_no_answer_are_compared_in_turn(
    command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_script_sweep(tmp_path, seeds=1)
    text = " ".join(command("compare", "two").out.split())
    assert "Nothing to compare" not in text
    for pair in ("lr=0.2 and lr=0.1", "width=16 and width=8"):
        assert f"{pair} could not be compared: too few runs: 1 of" in text
    assert "val_loss" in text and "By another metric" not in text, "there is no speed to compare"
    assert rows_of(command("compare", "two", "--format", "csv").out) == [], "files have what was asked for"


def test_the_commands_for_other_settings_are_complete(
    command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_script_sweep(tmp_path, seeds=3)
    (shown,) = re.findall(r"what else varies is compared with `(.*?)`", " ".join(command("compare", "two").out.split()))
    assert shown == "runmanager compare two --axis lr --metric val_loss"
    assert "0.2 / 0.1" in command(*shown.split()[1:]).out


def test_the_only_setting_that_varies_is_answered_as_where_it_is_named(
    command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_script_sweep(tmp_path, seeds=3, lr=[0.1])
    open_, named = (" ".join(command("compare", "two", *words).out.split()) for words in ((), ("--axis", "width")))
    best, difference = re.search(
        r"(The best val_loss .* width=8\.) (width=16 is worse than width=8: .*?\])", open_
    ).groups()
    assert best in named and difference in named
    assert "differ most" not in open_


def test_comparison_formats(command: Callable, sweep: SweepPaths) -> None:
    axes = [row["axis"] for row in json.loads(command("compare", "grid", "--format", "json").out)]
    assert axes == ["device", "device"]
    assert "compared as well" in " ".join(command("compare", "grid").out.split())
    assert "| verdict |" in command("compare", "grid", "--format", "markdown").out


def test_the_answer_comes_last_and_alone_and_the_other_question_is_named(
    command: Callable, sweep: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = command("compare", "grid").out.splitlines()
    answers = " ".join(lines[len(lines) - lines[::-1].index("") :])
    assert answers.startswith("The best ") and answers.endswith("4 runs: 2 finished, 2 skipped.")
    text = " ".join(lines)
    assert text.count("By another metric: ") == 1
    # Whole, so it can be copied.
    assert any("`runmanager compare grid --metric val_accuracy`" in line for line in lines)
    assert text.count("all intervals hold jointly") == 1
    assert "By another metric" not in command("compare", "grid", "--metric", "samples_per_second").out


def test_the_command_for_the_other_question_keeps_what_was_asked(command: Callable, sweep: SweepPaths) -> None:
    asked = ["--axis", "device", "--baseline", "cuda", "--drift", "0.2", "--margin", "0.05"]
    words = [*asked, "--where", "batch_size>0 and baseline==cuda"]
    (shown,) = re.findall(r"By another metric: `(.*?)`", " ".join(command("compare", "grid", *words).out.split()))
    assert shlex.split(shown) == [
        *("runmanager", "compare", "grid", *asked, "--metric", "val_accuracy"),
        *("--where", "batch_size>0 and baseline==cuda"),
    ]
    assert command(*shlex.split(shown)[1:]).status == 0


def test_the_command_for_the_speed_leaves_out_what_is_for_epochs(
    command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_script_sweep(tmp_path, seeds=3, widths=[8], samples=100)
    text = " ".join(command("compare", "two", "--at", "best").out.split())
    (shown,) = re.findall(r"By another metric: `(.*?)`", text)
    assert "--at" not in shown and command(*shlex.split(shown)[1:]).status == 0


def test_the_commands_for_other_settings_keep_the_direction(
    command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_script_sweep(tmp_path, seeds=3)
    text = " ".join(command("compare", "two", "--metric", "val_loss", "--better", "max", "--margin", "0.5").out.split())
    (shown,) = re.findall(r"what else varies is compared with `(.*?)`", text)
    assert shown == "runmanager compare two --axis lr --better max --margin 0.5 --metric val_loss"
