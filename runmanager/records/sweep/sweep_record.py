"""Record of a sweep (sweep.json): its cells in order, its axes, commands and drivers."""

import datetime
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, pairwise
from pathlib import Path
from typing import Any

import msgspec

from runmanager.errors import RecordError, UsageError
from runmanager.records.files.atomic_files import locked_folder, make_folder, replace_file, sync_folder
from runmanager.records.files.file_errors import Int64
from runmanager.records.files.paths import SweepPaths, dated_name, is_folder_name, refuse_linked_runs
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import SCHEMA_VERSION
from runmanager.records.settings.grid import Order, order_of, seeds_among
from runmanager.records.settings.signature import UNSIGNED, with_later_settings, without_unsigned
from runmanager.records.settings.values import differing_settings, flatten, hashable
from runmanager.records.storage.reader import run_names
from runmanager.records.storage.versioned_file import decode_file, encode_record
from runmanager.text import truncated


class PlannedCell(msgspec.Struct, frozen=True, gc=False):
    """A cell as requested: what tables show of it before its run has begun.

    `run` is the name of its run's folder, `name` that of the run, which in an older sweep is the same. `choices` are
    those of `RunRecord`.
    """

    signature: str
    run: str
    settings: dict[str, Any]
    choices: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    name: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            msgspec.structs.force_setattr(self, "name", self.run)

    @property
    def choices_and_settings(self) -> dict[str, Any]:
        return {**self.choices, **self.settings} if self.choices else self.settings


class SweepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One sweep, as stored in its sweep.json.

    `axes` maps each varying setting to its values in the given order; `cells` are the signatures in order; `planned`
    has the same cells with the settings in which they differ, and `settings` those that all cells share, with the
    shared `choices` apart; an older sweep, and one without config groups, has none of these. `commands` are
    all commands for the sweep, in order, immediate repetitions once; `command` is the last one, and `cells_after` the
    number of cells after each of them. `default_device` is the device of cells without a setting `device`: the CPU if
    it is left out, None if it is unknown, as for programs of other people. `drivers` are the processes that run cells
    now; a killed one stays until the next one begins. `removed` are the signatures of cells whose runs were removed by
    command, which a rerun leaves out. `metric` is the one that a command has asked to rank cells by. `defaults` are
    those with which the sweep began, of settings whose default has changed since the first version
    (`CHANGED_DEFAULTS`); an older sweep, and one of another program, has none. `derived` are the settings that no
    command gave: in all cells that have them their values are interpolations of other settings. `seed_names` are globs
    of settings that commands have called seeds, besides those of the usual names (`is_seed`). `order` has the positions
    of `cells` in the order in which they start; it is empty where that is their own. `decision` says what a command
    has found that ran seeds until its question was decided, and with how many of the full grid's runs. `search`
    is the method of one that has searched.
    """

    schema_version: Int64 = SCHEMA_VERSION
    command: tuple[str, ...]
    axes: dict[str, list[Any]]
    cells: tuple[str, ...]
    created: str
    host: str
    settings: dict[str, Any] = {}
    planned: tuple[PlannedCell, ...] = ()
    drivers: tuple[ProcessIdentity, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    cells_after: tuple[Int64, ...] = ()
    default_device: str | msgspec.UnsetType | None = msgspec.UNSET
    removed: tuple[str, ...] = ()
    metric: str | msgspec.UnsetType = msgspec.UNSET
    defaults: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    derived: tuple[str, ...] = ()
    choices: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    seed_names: tuple[str, ...] = ()
    order: tuple[Int64, ...] = ()
    decision: str | msgspec.UnsetType = msgspec.UNSET
    search: str | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if not self.commands:  # a record written before there was a list
            msgspec.structs.force_setattr(self, "commands", (self.command,))
            msgspec.structs.force_setattr(self, "cells_after", (len(self.cells),))

    @property
    def kept(self) -> list[PlannedCell]:
        """The planned cells that were not removed."""
        removed = frozenset(self.removed)
        return [cell for cell in self.planned if cell.signature not in removed]

    @property
    def drivers_at_work(self) -> list[ProcessIdentity]:
        """The drivers that are alive, or may be on another host."""
        return [driver for driver in self.drivers if driver.is_alive() is not False]

    @property
    def starts(self) -> list[str]:
        """The signatures of the cells in the order in which they start."""
        count = len(self.cells)
        positions = dict.fromkeys((*(at for at in self.order if 0 <= at < count), *range(count)))
        return [self.cells[at] for at in positions]

    def commands_by_run(self) -> dict[str, tuple[str, ...]]:
        """Return, by name of its run, the first command for each cell."""
        stretches = zip(self.commands, pairwise((0, *self.cells_after)), strict=False)
        return {cell.name: command for command, (first, end) in stretches for cell in self.planned[first:end]}


_DECODER = msgspec.json.Decoder(SweepRecord)


def plan_cell(
    signature: str,
    run: str,
    config: Mapping[str, Any],
    *,
    unsigned: Collection[str] = UNSIGNED,
    choices: Mapping[str, Any] | None = None,
    name: str = "",
) -> PlannedCell:
    """Return a cell with its flat settings but for those in `unsigned`, which are not part of its identity."""
    settings = with_later_settings(flatten(without_unsigned(config, unsigned)))
    return PlannedCell(signature, run, settings, dict(choices) if choices else msgspec.UNSET, name)


def varying_settings(record: SweepRecord | None, cell: PlannedCell) -> list[str]:
    """Return the settings in which `cell` and the cells of a sweep's record differ."""
    known = [] if record is None else settings_of_cells(record)
    return differing_settings([*known, cell.settings])


def settings_of_cells(record: SweepRecord) -> list[dict[str, Any]]:
    """Return all settings of each planned cell, the shared ones included."""
    return [_with_shared(each, record).settings for each in record.planned]


def read_sweep_record(paths: SweepPaths) -> SweepRecord | None:
    """Read the sweep's record; None if it does not exist. Raises `RecordError` for a damaged or newer one."""
    if not paths.record.exists():
        return None
    record = decode_file(paths.record, _DECODER)
    for cell in record.planned:
        if not is_folder_name(cell.run):
            reason = f"a cell's run must be the name of one folder, got {truncated(repr(cell.run))}"
            raise RecordError(f"{paths.record} is damaged: {reason}")
    return record


@dataclass(frozen=True)
class SweepCommand:
    """A command for a sweep: its words, and what it says of the sweep besides its cells.

    Equal values of `axes` are stored once; with None the axes are the settings in which all cells so far differ.
    `derived` are the settings that follow from others in all its cells, `seed_names` the globs of settings that are
    seeds. Known cells start in the stored `order`; new ones follow in this one, or as they come. `default_device` is
    stored as given, `metric` and `search` if there is one, `defaults` if the sweep begins with this command.
    """

    words: Sequence[str]
    axes: Mapping[str, Sequence[Any]] | None = None
    derived: Collection[str] = ()
    seed_names: Sequence[str] = ()
    order: str | None = None
    default_device: str | msgspec.UnsetType | None = msgspec.UNSET
    metric: str | None = None
    search: str | None = None
    defaults: Mapping[str, Any] | None = None


def write_cells(
    paths: SweepPaths, cells: Iterable[PlannedCell], command: SweepCommand, *, driver: ProcessIdentity | None = None
) -> SweepRecord:
    """Add `cells` to sweep.json after those of earlier commands for the same sweep; a removed one is so no longer.

    A known cell keeps its names, so that two drivers never give one cell two folders. `cells` is iterated
    twice; an iterable that creates cells on demand saves memory. `driver` is a process that will run cells until it
    calls `leave_sweep`.
    """
    refuse_linked_runs(paths)
    make_folder(paths.runs)
    with locked_folder(paths.root):  # two commands for one sweep may run at the same time
        earlier = read_sweep_record(paths)
        record = add_cells(earlier, cells, command)
        kept = {"metric": command.metric or record.metric, "search": command.search or record.search}
        record = msgspec.structs.replace(record, default_device=command.default_device, **kept)
        if earlier is None and command.defaults is not None:
            record = msgspec.structs.replace(record, defaults=dict(command.defaults))
        drivers = [each for each in record.drivers_at_work if each != driver]
        record = msgspec.structs.replace(record, drivers=(*drivers, *([driver] if driver else [])))
        replace_file(paths.record, encode_record(record))
    return record


def leave_sweep(paths: SweepPaths, driver: ProcessIdentity) -> None:
    """Remove `driver` from sweep.json: it will run no more cells."""
    with locked_folder(paths.root):
        record = read_sweep_record(paths)
        if record is not None and driver in record.drivers:
            drivers = tuple(each for each in record.drivers if each != driver)
            replace_file(paths.record, encode_record(msgspec.structs.replace(record, drivers=drivers)))


def note_decision(paths: SweepPaths, decision: str) -> None:
    """Write what a command has decided."""
    with locked_folder(paths.root):
        if (record := read_sweep_record(paths)) is not None:
            replace_file(paths.record, encode_record(msgspec.structs.replace(record, decision=decision)))


def mark_removed(paths: SweepPaths, signature: str) -> None:
    """Mark a cell as removed in sweep.json, if it is there."""
    with locked_folder(paths.root):
        record = read_sweep_record(paths)
        if record is not None and signature in record.cells and signature not in record.removed:
            marked = msgspec.structs.replace(record, removed=(*record.removed, signature))
            replace_file(paths.record, encode_record(marked))


def add_cells(earlier: SweepRecord | None, cells: Iterable[PlannedCell], command: SweepCommand) -> SweepRecord:
    """Return the `earlier` record with the cells of one more command added."""
    known = [] if earlier is None else [_with_shared(cell, earlier) for cell in earlier.planned]
    signatures = {cell.signature for cell in known}
    shared = _shared(cell.settings for cell in chain(known, cells))
    shared_choices = _shared(cell.choices or {} for cell in chain(known, cells))
    planned = {cell.signature: _without_shared(cell, shared, shared_choices) for cell in known}
    removed = dict.fromkeys(earlier.removed if earlier else ())
    for cell in cells:
        removed.pop(cell.signature, None)
        if cell.signature not in signatures:
            planned[cell.signature] = _without_shared(cell, shared, shared_choices)
        elif cell.choices and not shared_choices and not planned[cell.signature].choices:  # of an earlier version
            planned[cell.signature] = msgspec.structs.replace(planned[cell.signature], choices=cell.choices)
    all_axes = {} if earlier is None else {name: list(values) for name, values in earlier.axes.items()}
    axes = command.axes
    if axes is None:
        axes = _differing_values([*known, *(cell for cell in cells if cell.signature not in signatures)])
    for name, values in axes.items():
        listed = all_axes.setdefault(name, [])
        for value in values:
            if value not in listed:  # a set would not do: values may be lists
                listed.append(value)
    commands, counts = (earlier.commands, earlier.cells_after) if earlier else ((), ())
    if commands[-1:] == (tuple(command.words),):
        commands, counts = commands[:-1], counts[:-1]
    seed_names = list(dict.fromkeys((*(earlier.seed_names if earlier else ()), *command.seed_names)))
    return SweepRecord(
        command=tuple(command.words),
        commands=(*commands, tuple(command.words)),
        cells_after=(*counts, len(planned)),
        axes=all_axes,
        cells=tuple(planned),
        created=earlier.created if earlier else datetime.datetime.now(datetime.UTC).isoformat(),
        host=earlier.host if earlier else socket.gethostname(),
        settings=shared,
        planned=tuple(planned.values()),
        drivers=earlier.drivers if earlier else (),
        default_device=earlier.default_device if earlier else msgspec.UNSET,
        removed=tuple(removed),
        metric=earlier.metric if earlier else msgspec.UNSET,
        defaults=earlier.defaults if earlier else msgspec.UNSET,
        derived=_derived(known, earlier.derived if earlier else (), cells, command.derived),
        choices=shared_choices or msgspec.UNSET,
        seed_names=tuple(seed_names),
        order=_order(list(planned.values()), seed_names, command.order, earlier),
    )


def _order(
    cells: Sequence[PlannedCell], seed_names: Sequence[str], order: str | None, earlier: SweepRecord | None
) -> tuple[int, ...]:
    """Return the positions of cells in the order in which they start; empty if that is their own."""
    stored = earlier.starts if earlier and earlier.planned else []
    if order is None and not (earlier and earlier.order):
        return ()
    seeds = seeds_among({name for cell in cells for name in cell.settings}, seed_names)
    of_cells = [tuple(hashable(cell.settings.get(name)) for name in seeds) for cell in cells]
    at = {cell.signature: at for at, cell in enumerate(cells)}
    found = order_of(list(at), of_cells, order or Order.GRID, stored=[at[signature] for signature in stored])
    return tuple(found) if found != sorted(found) else ()


def _derived(
    known: Iterable[PlannedCell], before: Collection[str], cells: Iterable[PlannedCell], now: Collection[str]
) -> tuple[str, ...]:
    """Return the settings that are derived in all cells that have them, of those `before` and of this command."""
    one_sided = ((set(now).difference(before), known), (set(before).difference(now), cells))
    given = {name for names, others in one_sided if names for cell in others for name in names & cell.settings.keys()}
    return tuple(sorted({*before, *now} - given))


def _differing_values(cells: Sequence[PlannedCell]) -> dict[str, list[Any]]:
    """Return the settings in which cells differ, each with its values in order."""
    settings = [cell.settings for cell in cells]
    return {name: [each[name] for each in settings if name in each] for name in differing_settings(settings)}


def _with_shared(cell: PlannedCell, record: SweepRecord) -> PlannedCell:
    settings = with_later_settings({**record.settings, **cell.settings})
    choices = {**(record.choices or {}), **(cell.choices or {})}
    return PlannedCell(cell.signature, cell.run, settings, choices or msgspec.UNSET, cell.name)


def _without_shared(cell: PlannedCell, shared: Mapping[str, Any], choices: Mapping[str, Any]) -> PlannedCell:
    own, chosen = (
        {name: value for name, value in of_cell.items() if name not in of_all}
        for of_cell, of_all in ((cell.settings, shared), (cell.choices or {}, choices))
    )
    return PlannedCell(cell.signature, cell.run, own, chosen or msgspec.UNSET, cell.name)


def _shared(cells: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings that have the same value in all cells."""
    each = iter(cells)
    shared = dict(next(each, {}))
    for settings in each:
        for name, value in list(shared.items()):
            if name not in settings or type(settings[name]) is not type(value) or settings[name] != value:
                del shared[name]
    return shared


def open_sweep(folder: Path) -> SweepPaths:
    """Return the sweep in `folder`. Raises `UsageError` if there is none, `RecordError` if its record is damaged."""
    paths = SweepPaths(folder)
    if run_names(paths):
        return paths  # the runs can be read even if the record is damaged
    if read_sweep_record(paths) is None:
        raise UsageError(
            f"'{folder}' must be a sweep's folder (with a sweep.json and runs/), got "
            + ("a folder without them." if paths.root.is_dir() else "nothing there.")
        )
    return paths


def fresh_sweep_folder(output_root: Path, *, now: datetime.datetime | None = None) -> SweepPaths:
    """Create a new dated folder; two sweeps that begin in the same second get different ones."""
    stamp = dated_name(now=now)
    make_folder(output_root)
    for number in count(1):
        folder = output_root / (stamp if number == 1 else f"{stamp}_{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        sync_folder(output_root)
        return SweepPaths(folder)
    raise AssertionError("count() is infinite")
