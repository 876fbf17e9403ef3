"""Everything about one run: how it stands, what it was asked, what it measured, where its files are."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from runmanager.records.files.paths import RunPaths
from runmanager.records.host.device_peaks import DevicePeaks
from runmanager.records.run.attempts import describe_attempts
from runmanager.records.run.code_identity import describe_files
from runmanager.records.run.record import PHASES, EpochRecord, RunRecord
from runmanager.records.storage.reader import StoredRun
from runmanager.results.load.run_summary import measured_epochs
from runmanager.results.model.environment_text import FACTS
from runmanager.results.model.formatting import human
from runmanager.results.model.sections import Section
from runmanager.results.stats.descriptive import median
from runmanager.text import format_value

__all__ = ["run_headline", "run_sections"]

_SHOWN_EPOCHS = 10
_LOG_LINES = 10
_ERROR_LINES = 20
_TAIL_BYTES = 1 << 16
_TRAINING_PHASES = ("data", "transfer", "compute")
_EPOCH_COLUMNS = ("epoch", "loss", "accuracy", "val_loss", "val_accuracy", "epoch_seconds")


def run_headline(run: StoredRun) -> str:
    """The run's name, and its state with its reason and message."""
    record = run.record
    reason = f" ({record.reason.value})" if record.reason is not None else ""
    message = f": {record.message}" if record.message else ""
    return f"{record.name}: {record.status.value}{reason}{message}"


def run_sections(run: StoredRun) -> list[Section]:
    """The account of a run; a section with nothing in it has neither rows nor lines."""
    record = run.record
    return [
        Section("Run", _run_rows(run)),
        Section("Settings", [(name, format_value(value)) for name, value in record.settings.items()]),
        Section("Epochs", *_epoch_rows(run.epochs)),
        Section("Times by phase, medians over measured epochs", *_phase_rows(measured_epochs(run))),
        Section("Measured", _measurement_rows(record)),
        Section("Environment", _environment_rows(record)),
        Section("Earlier attempts", _attempt_rows(record), lines=describe_attempts(record)),
        Section("Done otherwise than asked", lines=record.deviations),
        Section("Notes", lines=record.notes),
        Section("Files", _file_rows(run.paths)),
        _tail_section(run.paths.error, _ERROR_LINES),
        _tail_section(run.paths.log, _LOG_LINES),
    ]


def _run_rows(run: StoredRun) -> list[tuple[str, str]]:
    record = run.record
    done = sum(epoch.epoch > 0 for epoch in run.epochs)
    planned = "" if record.epochs_planned is None else f" of {record.epochs_planned}"
    rows = [
        ("signature", record.signature),
        ("attempt", str(record.attempt)),
        ("started", record.started_at),
        ("gone on with", record.resumed_at),
        ("ended", record.ended_at),
        ("epochs", f"{done}{planned}"),
        ("seconds", None if record.run_seconds is None else human(record.run_seconds, "run_seconds")),
        ("parameters", None if record.num_parameters is None else f"{record.num_parameters:,}"),
        ("peak memory", _bytes(record.peak_memory_bytes)),
        ("command", " ".join(record.environment.command) or None),
    ]
    return [(name, value) for name, value in rows if value is not None]


def _bytes(count: int | None) -> str | None:
    return None if count is None else human(count, "peak_memory_bytes")


def _epoch_rows(epochs: Sequence[EpochRecord]) -> tuple[list[list[str]], list[str]]:
    """The first and the last epochs, and the headings over them."""
    half = _SHOWN_EPOCHS // 2
    is_short = len(epochs) <= _SHOWN_EPOCHS
    kept = list(epochs) if is_short else [*epochs[:half], *epochs[-half:]]
    rows = [[human(getattr(epoch, name), name) for name in _EPOCH_COLUMNS] for epoch in kept]
    for row, epoch in zip(rows, kept, strict=True):
        row.append("warm-up" if epoch.warmup else "")
    if not is_short:
        rows.insert(half, ["…"])
    return rows, ([name.replace("_", " ") for name in _EPOCH_COLUMNS] if rows else [])


def _phase_rows(measured: Sequence[EpochRecord]) -> tuple[list[list[str]], list[str]]:
    """Each phase's seconds and its share of the wall time; the whole training where none of its phases is known."""

    def middle(column: str) -> float | None:
        return median([value for epoch in measured if (value := getattr(epoch, column)) is not None])

    wall = middle("wall_seconds")
    parts = {phase: middle(f"{phase}_seconds") for phase in PHASES}
    if all(parts[phase] is None for phase in _TRAINING_PHASES):
        parts = {"training": middle("epoch_seconds"), **parts}
    rows = []
    for part, seconds in parts.items():
        if seconds is not None and wall:
            rows.append([part, human(seconds, "epoch_seconds"), f"{seconds / wall:.1%}"])
    if rows and wall:
        rows.append(["wall", human(wall, "wall_seconds"), ""])
    return rows, (["phase", "seconds", "share"] if rows else [])


def _measurement_rows(record: RunRecord) -> list[tuple[str, str]]:
    """What was measured beside the epochs; integers with thousands apart."""
    found = msgspec.structs.asdict(record.measurements)
    return [(name, _figure(value)) for name, value in found.items() if value is not None and name != "ceilings"] + (
        _ceiling_rows(record.measurements.ceilings) if record.measurements.ceilings else []
    )


def _ceiling_rows(ceilings: DevicePeaks) -> list[tuple[str, str]]:
    found = msgspec.structs.asdict(ceilings)
    return [(f"ceilings.{name}", _figure(value)) for name, value in found.items() if value is not None]


def _figure(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_figure(item)}" for name, item in value.items())
    return f"{value:,}" if isinstance(value, int) else human(value, "loss")


def _environment_rows(record: RunRecord) -> list[tuple[str, str]]:
    environment = record.environment
    rows = [(words, getattr(environment, name)) for name, words in FACTS]
    libraries = ", ".join(f"{name} {version}" for name, version in sorted(environment.libraries.items()))
    known = [(words, human(value, "loss")) for words, value in rows if value not in (None, "")]
    if environment.code is not None:
        files = [f"{name} {digest}" for name, digest in environment.code.items()]
        known.append(("Own code", describe_files(files) or "none"))
    return [*known, ("Libraries", libraries)] if libraries else known


def _attempt_rows(record: RunRecord) -> list[tuple[str, str]]:
    return [
        (str(number), f"{each.started_at} to {each.ended_at}, up to epoch {each.last_epoch}, {each.environment.host}")
        for number, each in enumerate(record.earlier, start=1)
    ]


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
    lines = _tail(path)
    cut = f" (the last {count} of its lines)" if len(lines) > count else ""
    return Section(f"{path.name}{cut}", lines=lines[-count:])


def _tail(path: Path) -> list[str]:
    """The last lines of a text file, however long it is; none of what is no file, or not there."""
    if not path.is_file():  # a pipe would have its reader wait, and a device has no end
        return []
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        return file.read().decode(errors="replace").splitlines()
