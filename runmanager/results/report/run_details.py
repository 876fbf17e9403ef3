"""The details of one run: its status, settings, measurements, environment and files."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from runmanager.records.files.paths import RunPaths
from runmanager.records.host.gpus import DevicePeaks
from runmanager.records.run.environment_changes import describe_attempts, describe_files
from runmanager.records.run.measurement import RUN_FACTS, Measurement, Unit
from runmanager.records.run.run_record import PHASES, TRAINING_PHASES, EpochRecord, RunRecord, counted_word
from runmanager.records.storage.reader import StoredRun, read_sweep
from runmanager.results.findings.answer_sentences import shared_file_lines
from runmanager.results.findings.roofline import work_of
from runmanager.results.load.run_summary import (
    clock_changes,
    last_metrics,
    logged_values,
    measured_epochs,
    metric_names,
    readings_of,
)
from runmanager.results.stats.descriptive import median
from runmanager.results.table_model.columns import rate_name
from runmanager.results.table_model.formatting import FACTS, Section, human, in_words, with_unit_prefix
from runmanager.text import format_value, shell_command

_SHOWN_EPOCHS = 10
_SHOWN_METRICS = 4
_LOG_LINES = 10
_ERROR_LINES = 20
_TAIL_BYTES = 1 << 16
_CURSOR = re.compile(r"(\n|\r|\x1b\[\d*[AF])")
_CURSOR_UP = re.compile(r"\x1b\[(\d*)[AF]")
_MAIN_FACTS = ("host", "cpu_model", "device_name", "python", "commit_text", "commit_clean")
_EPOCH_COLUMNS = ("epoch", "loss", "accuracy", "val_loss", "val_accuracy", "epoch_seconds")


def run_headline(run: StoredRun) -> str:
    """The run's name and its status, with reason and message."""
    record = run.record
    reason = f" ({in_words(record.reason.value)})" if record.reason is not None else ""
    message = f": {record.message}" if record.message else ""
    return f"{record.name}: {record.status.value}{reason}{message}"


def run_sections(run: StoredRun, *, shows_all: bool) -> list[Section]:
    """The sections of a run's details, in order of display; a section may be empty.

    With `shows_all` they have every setting, measurement and fact of the environment; else those that its command
    names, what follows from the measurements, and where it ran.
    """
    record = run.record
    records = _records(run)
    return [
        Section("Run", _run_rows(run, shows_all=shows_all)),
        Section("Settings", _setting_rows(record, shows_all=shows_all)),
        Section(records.capitalize(), *_epoch_rows(run.epochs, counted_word(record))),
        _logged_section(run),
        Section(f"Times by phase, medians over measured {records}", *_phase_rows(measured_epochs(run))),
        Section("Inference", *_inference_rows(record)),
        Section("Measured", _measurement_rows(run, shows_all=shows_all)),
        Section("Environment", _environment_rows(record, shows_all=shows_all)),
        Section("Earlier attempts", _attempt_rows(record), lines=describe_attempts(record)),
        Section("Deviations from the settings", lines=record.deviations),
        Section("Notes", lines=[*record.notes, *clock_changes(run, measured_epochs(run)).lines()]),
        Section("Files shared with other runs", lines=_shared_files(run)),
        Section("Files", _file_rows(run.paths)),
        _tail_section(run.paths.error, _ERROR_LINES),
        _tail_section(run.paths.log, _LOG_LINES),
    ]


def _setting_rows(record: RunRecord, *, shows_all: bool) -> list[tuple[str, str]]:
    """The settings; without `shows_all` those that the command names, if it names any."""
    settings = record.choices_and_settings
    named = {word.partition("=")[0].lstrip("-+~") for word in record.environment.command if "=" in word}
    given = [name for name in settings if name in named or name.removesuffix(".name") in named]
    return [(name, format_value(settings[name])) for name in (settings if shows_all or not given else given)]


def _records(run: StoredRun) -> str:
    """Name the run's records."""
    return "intervals" if run.record.interval == "steps" else "epochs"


def _run_rows(run: StoredRun, *, shows_all: bool) -> list[tuple[str, str]]:
    """What the run was, and how it went; `runmanager reproduce` prints its command."""
    record = run.record
    num_done = sum(epoch.epoch > 0 for epoch in run.epochs)
    planned = "" if record.epochs_planned is None else f" of {record.epochs_planned}"
    rows = [
        ("signature", record.signature if shows_all else None),
        ("adopted from", record.adopted or None),
        ("continues", record.continued_from or None),
        ("attempt", str(record.attempt) if record.attempt > 1 else None),
        ("started", record.started_at),
        ("resumed", record.resumed_at),
        ("ended", record.ended_at),
        (_records(run), f"{num_done}{planned}"),
        ("seconds", None if record.run_seconds is None else human(record.run_seconds, "run_seconds")),
        *((each.heading or each.label, _fact(getattr(record, each.name), each)) for each in RUN_FACTS),
        ("command", (shell_command(record.environment.command) or None) if shows_all else None),
    ]
    return [(name, value) for name, value in rows if value is not None]


def _fact(value: float | None, measured: Measurement) -> str | None:
    if value is None:
        return None
    return f"{value:,}" if measured.unit is Unit.COUNT else human(value, measured.name)


def _epoch_rows(epochs: Sequence[EpochRecord], counted: str) -> tuple[list[list[str]], list[str]]:
    """The first and the last epochs, and the column headings; logged metrics follow, the first ones."""
    half = _SHOWN_EPOCHS // 2
    is_short = len(epochs) <= _SHOWN_EPOCHS
    shown = list(epochs) if is_short else [*epochs[:half], *epochs[-half:]]
    logged = metric_names(epochs)[:_SHOWN_METRICS]
    rows = [[human(getattr(epoch, name), name) for name in _EPOCH_COLUMNS] for epoch in shown]
    for row, epoch in zip(rows, shown, strict=True):
        metrics = epoch.metrics or {}
        row += [human(metrics[name], "loss") if name in metrics else "" for name in logged]
        row.append("warm-up" if epoch.warmup else "")
    if not is_short:
        rows.insert(half, ["…"])
    seconds = "interval seconds" if counted == "step" else "epoch seconds"
    titles = [counted, *(name.replace("_", " ") for name in _EPOCH_COLUMNS[1:-1]), seconds]
    return rows, ([*titles, *logged] if rows else [])


def _logged_section(run: StoredRun) -> Section:
    """The program's metrics: each value in the tables, the epoch that it is from or its source; each unit."""
    names, values = logged_values(run)
    rates = dict(zip(names.units, values[len(names.metrics) :], strict=True))
    last = {name: epoch.epoch for epoch in run.epochs for name in epoch.metrics or {}}
    summary, origins = run.record.summary or {}, run.record.origins or {}
    rows = [
        (
            name,
            human(value, "loss"),
            f"of the whole run{f', {origins[name]}' if name in origins else ''}"
            if name in summary
            else f"{counted_word(run.record)} {last[name]}",
        )
        for name, value in (last_metrics(run.epochs) | summary).items()
    ]
    for unit, rate in rates.items():
        total = sum((epoch.units or {}).get(unit, 0) for epoch in run.epochs)
        rows.append((unit, f"{total:,}", f"in all {counted_word(run.record)}s"))
        if rate is not None:
            rows.append((rate_name(unit), human(rate, "samples_per_second"), f"median over measured {_records(run)}"))
    return Section("Logged by the program", rows)


def _inference_rows(record: RunRecord) -> tuple[list[list[str]], list[str]]:
    """The latencies and the throughput of each batch size, and the headings of these columns."""
    rows = [
        [
            f"batches of {each.batch_size}",
            *(
                f"{seconds * 1e3:.4g} ms"
                for seconds in (each.latency_p50_seconds, each.latency_p90_seconds, each.latency_p99_seconds)
            ),
            f"{with_unit_prefix(each.inference_samples_per_second).strip()}/s",
        ]
        for each in record.measurements.inference or ()
    ]
    return rows, ["latency p50", "p90", "p99", "samples"]


def _phase_rows(measured: Sequence[EpochRecord]) -> tuple[list[list[str]], list[str]]:
    """The seconds of each phase and its share of the wall time, and the column headings.

    If none of the training phases is known, a single row has the whole training part.
    """

    def median_of(column: str) -> float | None:
        return median([value for epoch in measured if (value := getattr(epoch, column)) is not None])

    wall = median_of("wall_seconds")
    phases = {phase: median_of(f"{phase}_seconds") for phase in PHASES}
    if all(phases[phase] is None for phase in TRAINING_PHASES):
        phases = {"training": median_of("epoch_seconds"), **phases}
    rows = []
    for phase, seconds in phases.items():
        if seconds is not None and wall:
            rows.append([phase, human(seconds, "epoch_seconds"), f"{seconds / wall:.1%}"])
    if rows and wall:
        rows.append(["wall", human(wall, "wall_seconds"), ""])
    return rows, (["phase", "seconds", "share"] if rows else [])


def _measurement_rows(run: StoredRun, *, shows_all: bool) -> list[tuple[str, str]]:
    """The measurements of the run as a whole, with thousands separators, and what follows from its work and times."""
    found, readings = run.record.measurements, readings_of(run, measured_epochs(run))
    values = msgspec.structs.asdict(found)
    known = {name: value for name, value in values.items() if value not in (None, msgspec.UNSET)}
    rows = [(f"{name}=auto", format_value(value)) for name, value in (found.chosen or {}).items()]
    if shows_all:
        rows += [(name, _number(value)) for name, value in known.items() if name not in ("ceilings", "chosen")]
    rows += [(name, human(value, name)) for name, value in readings.items() if value is not None]
    return [*rows, *_utilization_rows(run), *(_peak_rows(found.ceilings) if shows_all and found.ceilings else [])]


def _utilization_rows(run: StoredRun) -> list[tuple[str, str]]:
    """The FLOP a second, and the model FLOP utilization where the device's ceiling is known."""
    work = work_of(run).get("compute")
    if work is None or work.per_second is None:
        return []
    rows = [("flop_per_second", f"{with_unit_prefix(work.per_second)}FLOP/s")]
    if work.share is None or work.at_best is None:
        return rows
    at_best = f"{with_unit_prefix(work.at_best)}FLOP/s in {run.record.measurements.precision}"
    return [*rows, ("MFU", f"{work.share:.1%} of {at_best}")]


def _peak_rows(peaks: DevicePeaks) -> list[tuple[str, str]]:
    values = msgspec.structs.asdict(peaks)
    return [(f"ceilings.{name}", _number(value)) for name, value in values.items() if value is not None]


def _number(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_number(item)}" for name, item in value.items())
    return f"{value:,}" if isinstance(value, int) else human(value, "loss")


def _environment_rows(record: RunRecord, *, shows_all: bool) -> list[tuple[str, str]]:
    environment = record.environment
    facts = [each for each in FACTS if shows_all or each[0] in _MAIN_FACTS]
    rows = [(label, getattr(environment, name)) for name, label in facts]
    named = [each for each in sorted(environment.libraries.items()) if shows_all or each[0] == "torch"]
    libraries = ", ".join(f"{name} {version}" for name, version in named)
    known = [(label, human(value, "loss")) for label, value in rows if value not in (None, "")]
    if environment.code is not None and shows_all:
        files = [f"{name} {digest}" for name, digest in environment.code.items()]
        known.append(("Own code", describe_files(files) or "none"))
    return [*known, ("Libraries", libraries)] if libraries else known


def _attempt_rows(record: RunRecord) -> list[tuple[str, str]]:
    counted = counted_word(record)
    return [
        (
            f"{number} of {part.run}" if part.run else str(number),
            f"{part.started_at} to {part.ended_at}, up to {counted} {part.last_epoch}, {part.environment.host}",
        )
        for number, part in enumerate(record.earlier, start=1)
    ]


def _shared_files(run: StoredRun) -> list[str]:
    """What is known of files outside the run folders that this run shares with others of its sweep."""
    if not run.record.outside:
        return []
    return shared_file_lines(read_sweep(run.paths.sweep, epochs_of=lambda _: False).runs, of=run)


def _file_rows(paths: RunPaths) -> list[tuple[str, str]]:
    files = [
        ("folder", paths.root),
        ("configuration", paths.config),
        ("TensorBoard", paths.events),
        ("log", paths.log),
        ("error", paths.error),
        ("checkpoint", paths.checkpoint),
        ("best weights", paths.best),
        ("earlier files", paths.attempts),
    ]
    return [(name, str(path)) for name, path in files if path is not None and path.exists()]


def _tail_section(path: Path, count: int) -> Section:
    lines = tail(path)
    cut = f" (the last {count} lines)" if len(lines) > count else ""
    return Section(f"{path.name}{cut}", lines=lines[-count:])


def tail(path: Path, *, max_bytes: int = _TAIL_BYTES) -> list[str]:
    """Return the last lines of a text file, within its last bytes; none if it is not a regular file."""
    if path.is_symlink() or not path.is_file():  # a pipe would block, a device has no end, a link may lead anywhere
        return []
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - max_bytes))
        return _last_states(file.read().decode(errors="replace"))


def _last_states(text: str) -> list[str]:
    """Return the lines of a text as a terminal leaves them: one that was redrawn, as a progress bar, in its last state.

    A carriage return redraws the line, and the cursor may move up to an earlier one.
    """
    rows, row, is_redrawn = [""], 0, False
    for part in _CURSOR.split(text.replace("\r\n", "\n")):
        if part == "\n":
            row, is_redrawn = row + 1, True
            rows += [""] * (row == len(rows))
        elif part == "\r":
            is_redrawn = True
        elif moved := _CURSOR_UP.fullmatch(part):
            row, is_redrawn = max(0, row - int(moved[1] or 1)), True
        elif part:
            rows[row], is_redrawn = part if is_redrawn else rows[row] + part, False
    return rows[:-1] if not rows[-1] else rows
