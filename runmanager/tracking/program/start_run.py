"""`start_run`: the run of a program, in a cell of a sweep or by itself."""

import dataclasses
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch

from runmanager.errors import UsageError
from runmanager.records.files.atomic_files import replace_file
from runmanager.records.files.paths import RunPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.host.standard_streams import show_line
from runmanager.records.run.run_record import RANK_0_ALONE, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.settings.secrets import declare_secrets
from runmanager.records.settings.signature import signature
from runmanager.records.settings.values import flatten, plain_settings
from runmanager.records.storage.reader import read_record
from runmanager.records.storage.run_folder import RunFolder
from runmanager.records.storage.versioned_file import encode_record
from runmanager.text import error_line, truncated
from runmanager.tracking.checkpoint.training_state import loop_checkpointer
from runmanager.tracking.device.devices import device_in_use, device_of, resolve_device
from runmanager.tracking.environment.cell_process import RUN_VARIABLE, is_apart, rank_of_process
from runmanager.tracking.environment.code_hashes import hash_user_code
from runmanager.tracking.environment.environment import capture_environment
from runmanager.tracking.epoch_recorder import RunPlace
from runmanager.tracking.inactive_run import InactiveRun
from runmanager.tracking.lifecycle.finalizers import temporary_folder
from runmanager.tracking.manager import RunManager
from runmanager.tracking.options import RunOptions, TensorBoardOptions, declared_directions
from runmanager.tracking.program.current_run import (
    end_at_exit,
    is_loader_worker,
    keep_started,
    refuse_second_start,
    starting,
)
from runmanager.tracking.program.reported_folder import claim_report
from runmanager.tracking.ranks.run_ranks import RunRanks
from runmanager.tracking.run import ActiveRun
from runmanager.tracking.sinks import Sink
from runmanager.tracking.tensorboard.sink import default_sinks
from runmanager.tracking.torch_internals import process_group_store

_POSITIONAL = "arguments"
_NAME = re.compile(r"[A-Za-z_][\w.@/-]*")


def command_line_settings() -> dict[str, Any]:
    """Return the settings on this program's command line; none in a notebook or an interactive session."""
    is_script = hasattr(sys.modules.get("__main__"), "__file__") and "ipykernel" not in sys.modules
    return parse_settings(sys.argv[1:]) if is_script else {}


def parse_settings(words: Sequence[str]) -> dict[str, Any]:
    """Return the settings in `words`: `--lr=0.1`, `--lr 0.1`, `lr=0.1`; a bare flag is true.

    Values are numbers, booleans, null, lists and mappings in Hydra's syntax, else text. A repeated name gives a list;
    other words are under `arguments`.
    """
    found: dict[str, list[Any]] = {}
    for name, value in _pairs(words):
        found.setdefault(name, []).append(value)
    return {name: values if len(values) > 1 or name == _POSITIONAL else values[0] for name, values in found.items()}


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, Any]]:
    at = 0
    while at < len(words):
        word, following = words[at], words[at + 1] if at + 1 < len(words) else None
        at += 1
        if word == "--":
            yield from ((_POSITIONAL, each) for each in words[at:])
            return
        name, has_value, value = word.lstrip("-+").partition("=")
        is_flag = _is_flag(word)
        if has_value and _NAME.fullmatch(name):
            yield name, _value(value)
        elif not is_flag:
            yield _POSITIONAL, word
        elif following is None or _is_flag(following) or "=" in following:
            yield name, True
        else:
            yield name, _value(following)  # of a flag that takes one, as only the program knows
            at += 1


def _is_flag(word: str) -> bool:
    """Return whether a word names a flag: `--name` or `-n`, but not a negative number."""
    return word.startswith("-") and word.lstrip("-")[:1].isalpha()


def _value(text: str) -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(f"name={text}")
        value = override.value()
    except HydraException:
        return text
    return text if override.is_sweep_override() or not _is_plain(value) else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    return value is None or isinstance(value, bool | int | float | str)


_NOT_RECORDED = "not-recorded"
_run_numbers = itertools.count(1)  # of runs of several ranks, the same in each


def start_run(
    model: torch.nn.Module | None = None,
    loader: Any = None,
    *,
    params: Any = None,
    optimizer: torch.optim.Optimizer | None = None,
    state: Mapping[str, Any] | None = None,
    root: str | Path | None = None,
    record_every: int | None = None,
    options: RunOptions | None = None,
    tensorboard: TensorBoardOptions | None = None,
    secrets: Sequence[str] = (),
) -> ActiveRun | InactiveRun:
    """Start the run of this program: the cell that a launcher started it for, else a sweep of one run.

    ```
    with runmanager.start_run(model, loader, params={"lr": lr}, optimizer=optimizer) as run:
        for epoch in run.epochs(10):
            for images, labels in epoch.batches(loader): ...
    ```

    Without `with` the run ends with `run.end()`, or as the process does. A sweep of one is a new folder below
    `outputs/`, or the folder `root`, where a finished run with the same settings is kept: it yields no epochs, and its
    `should_stop` is true. `params` are the settings, as in `RunManager.run`; by default those on the command line. In a
    cell they are the cell's: a deviation from them is noted, and `root` has no effect.

    The device is that of the settings, to which `model` is moved; without one `model` stays where it is, and batches
    are moved to it. In a loop without epochs a record closes every `record_every` steps, by default after as many as
    take a second. `state` is saved with each record, as in `RunManager.run`: in a cell that runs again, or in the same
    `root`, a killed run continues after its last record. A loop by steps begins at `run.num_steps` and takes its
    batches from `run.batches`: an evaluation after a record's last step then belongs to that record; in a loop by hand
    to the next one, as the next step has changed the weights by the time that it is tracked.

    One process records a run. Workers of a `DataLoader` get a run that yields nothing. Of several ranks, all call
    `start_run` after the process group was initialised, and rank 0 records: at the end of each epoch, or interval of
    steps, it gets what the others have measured, and all stop together. A process beside the cell's own, as a Hydra
    task starts that runs its program again, or Lightning's further ranks before there is a process group, gets a run
    that trains and records nothing.

    The texts of settings named `password`, `secret`, `api_key`, `access_token` and `auth_token` are masked in all that
    is written; `secrets` are the names of others, for this process.
    Raises `UsageError` while a run of this process is open, for invalid settings or a `model` that is none, in a second
    process of a cell, and for a `state` in one of several ranks; `DeviceUnavailableError` in a cell whose device is
    missing; `RankError` in a rank whose rank 0 is gone.
    """
    if model is not None and not hasattr(model, "parameters"):
        raise UsageError(f"`model` must be a module, got a {type(model).__name__}; settings are given as `params=`.")
    declare_secrets(secrets)
    options = options or RunOptions()
    if record_every is not None:
        options = dataclasses.replace(options, record_every=record_every)
    checkpointer = loop_checkpointer(model, loader, state, optimizer=optimizer, options=options, allows_none=True)
    start = _Start(model, params, options, tensorboard, can_resume=state is not None)
    run = _started(start, root)
    if isinstance(run, ActiveRun) and (model is not None or loader is not None or checkpointer is not None):
        is_recorded = run.paths.name != _NOT_RECORDED
        try:
            run.begin(model, loader, optimizer=optimizer, checkpointer=checkpointer if is_recorded else None)
        except BaseException as error:
            run.end(error)
            raise
    return run


def start_run_of_framework(
    device: torch.device, *, params: Any = None, root: str | Path | None = None, is_alone: bool = False
) -> ActiveRun | InactiveRun:
    """Start a run as `start_run` does, for a framework that trains on `device`: nothing is moved, whatever is set.

    `is_alone`: of several ranks rank 0 alone starts it, and records what it has measured itself.
    """
    return _started(_Start(None, params, RunOptions(), None, device, is_alone=is_alone), root)


def _started(start: "_Start", root: str | Path | None) -> ActiveRun | InactiveRun:
    if is_loader_worker():
        return start.of_worker()
    with starting:
        refuse_second_start()
        if is_apart():
            run: ActiveRun | InactiveRun = start.apart()
        else:
            run = start.in_rank(*rank_of_process(in_cell=RUN_VARIABLE in os.environ), root)
        keep_started(run)
    if isinstance(run, ActiveRun):
        end_at_exit()
    return run


class _ProgramManager(RunManager):
    """The manager of a program's own sweep, which leaves a model where it is unless the settings name a device."""

    _in_program = True
    _default_device = None  # where the model is, without a setting that names a device

    def __init__(self, root: str | Path | None, place: "_Place", ranks: RunRanks | None, **options: Any) -> None:
        super().__init__(root, **options)
        self._place_of = place
        self._ranks = ranks

    def start(self, settings: Mapping[str, Any], options: RunOptions, *, can_resume: bool) -> ActiveRun | InactiveRun:
        """Claim the folder of the run with these settings."""
        return self._open(settings, options, can_resume=can_resume)

    def _refuse_ranks(self) -> None:
        pass  # rank 0 records

    def _place(self, settings: Mapping[str, Any]) -> tuple[torch.device, bool]:
        return self._place_of(settings)


_Place = Callable[[Mapping[str, Any]], tuple[torch.device, bool]]


def _place(
    settings: Mapping[str, Any], model: torch.nn.Module | None, device: torch.device | None
) -> tuple[torch.device, bool]:
    """Return the device of the run, and whether the model stays where it is. Raises `DeviceUnavailableError`."""
    if device is not None:
        return device, True
    if settings.get("device"):
        return resolve_device(str(settings["device"])), False
    return device_of(model) or device_in_use(), True


class _Start:
    """The ways to start a run with one set of arguments."""

    def __init__(
        self,
        model: torch.nn.Module | None,
        params: Any,
        options: RunOptions,
        tensorboard: TensorBoardOptions | None,
        device: torch.device | None = None,
        *,
        can_resume: bool = False,
        is_alone: bool = False,
    ) -> None:
        self._place: _Place = partial(_place, model=model, device=device)
        self._params = params
        self._options = options
        self._tensorboard = tensorboard
        self._can_resume = can_resume
        self._is_alone = is_alone
        self._ranks: RunRanks | None = None

    def in_rank(self, rank: int, size: int, root: str | Path | None) -> ActiveRun | InactiveRun:
        """Start the run of this rank; rank 0 records, and the others do what it tells."""
        if size == 1:
            return self._recorded(root)
        if self._can_resume:
            raise UsageError(
                f"`state` must belong to a run of one process, got one of {size} ranks, whose states differ; leave it "
                "out, and save what the program needs in run.dir."
            )
        if not self._is_alone:
            timeout = self._options.rank_timeout
            number = next(_run_numbers)
            self._ranks = RunRanks(rank, size, number=number, timeout=timeout, find_store=process_group_store)
        if rank:
            return self._of_other_rank()
        try:
            run = self._recorded(root)
        except Exception as error:
            if self._ranks is not None:
                self._ranks.begin(error=error_line(error))
            raise
        if isinstance(run, ActiveRun):
            run.write_world_size(size)
            if self._is_alone:
                run.note_deviation(f"one of {size} ranks: {RANK_0_ALONE}")
        if self._ranks is not None:
            self._ranks.begin(trains=isinstance(run, ActiveRun), folder=str(run.paths.root.absolute()))
        return run

    def _recorded(self, root: str | Path | None) -> ActiveRun | InactiveRun:
        return self.cell() if RUN_VARIABLE in os.environ else self.standalone(root)

    def _of_other_rank(self) -> ActiveRun | InactiveRun:
        first = None if self._ranks is None else self._ranks.begin()
        if first is not None and not first.trains:
            return self.of_worker()
        return self.unrecorded(Path(first.folder) if first is not None and first.folder else None)

    def apart(self) -> ActiveRun:
        """Start a run for a process beside the cell's own, which trains too."""
        if "LOCAL_RANK" not in os.environ:
            show_line(f"process {os.getpid()} runs beside the one of the cell: what it logs is not recorded")
        return self.unrecorded(None)

    def _settings(self) -> dict[str, Any]:
        return plain_settings(command_line_settings() if self._params is None else self._params)

    def standalone(self, root: str | Path | None) -> ActiveRun | InactiveRun:
        """Start a sweep of one run."""
        settings = self._settings()  # before a folder is created
        manager = _ProgramManager(root, self._place, self._ranks, tensorboard=self._tensorboard)
        return manager.start(settings, self._options, can_resume=self._can_resume)

    def cell(self) -> ActiveRun:
        """Start the run of the cell that this process is."""
        folder = claim_report(RunPaths(Path(os.environ[RUN_VARIABLE])), can_resume=self._can_resume)
        settings = folder.record.config
        device, keeps_place = self._place(settings)
        code = hash_user_code(settings, is_built_in=False)
        better = declared_directions() or msgspec.UNSET
        folder.write(environment=capture_environment(device, code=code), better=better)
        run = self._active(folder, device, default_sinks(self._tensorboard), keeps_place=keeps_place)
        if self._params is not None:
            _note_deviations(run, flatten(plain_settings(self._params)), flatten(settings))
        if self._options.extends_epochs:
            run.note("extends_epochs has no effect in a cell of a sweep, which starts with its first epoch")
        return run

    def unrecorded(self, folder: Path | None) -> ActiveRun:
        """Start a run for a rank that trains but records nothing: its record is in a temporary folder.

        `folder` is that of rank 0's run, if it is known and the host has it.
        """
        if RUN_VARIABLE in os.environ:
            folder = Path(os.environ[RUN_VARIABLE])
        cell = RunPaths(folder) if folder is not None and (folder / "run.json").exists() else None
        settings = self._settings() if cell is None else read_record(cell).config
        paths = RunPaths(temporary_folder() / _NOT_RECORDED)
        paths.root.mkdir()
        record = _unrecorded_record(settings)
        replace_file(paths.record, encode_record(record))
        if cell is not None:  # its files are shared by all ranks
            cell.files.mkdir(exist_ok=True)
            paths.files.symlink_to(cell.files.resolve(), target_is_directory=True)
        device, keeps_place = self._place(settings)
        return self._active(RunFolder(paths, record), device, [], keeps_place=keeps_place)

    def of_worker(self) -> InactiveRun:
        """Return a run that yields nothing, for a worker of a `DataLoader`."""
        cell = RunPaths(Path(os.environ[RUN_VARIABLE])) if RUN_VARIABLE in os.environ else None
        record = _unrecorded_record(plain_settings(self._params)) if cell is None else read_record(cell)
        folder = RunFolder(cell or RunPaths(Path(_NOT_RECORDED)), record)
        folder.leave()
        return InactiveRun(folder, [], show=show_line)

    def _active(self, folder: RunFolder, device: torch.device, sinks: list[Sink], *, keeps_place: bool) -> ActiveRun:
        return ActiveRun(
            RunPlace(folder, device, keeps_place, self._ranks),
            sinks,
            self._options,
            in_program=True,
            show=show_line,
        )


def _unrecorded_record(settings: dict[str, Any]) -> RunRecord:
    return RunRecord(
        name=_NOT_RECORDED,
        signature=signature(settings, unsigned=()),
        status=Status.RUNNING,
        config=settings,
        owner=ProcessIdentity.current(),
    )


def _note_deviations(run: ActiveRun, given: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Note settings of the program that are not those of its cell, which the tables show."""
    for name in given.keys() & settings.keys():
        if given[name] != settings[name] and str(given[name]) != str(settings[name]):
            run.note_deviation(truncated(f"{name} is {given[name]!r} in the program, {settings[name]!r} in the cell"))
    more = [f"{name}={value}" for name, value in given.items() if name not in settings]
    if more:
        run.note(f"further settings of the program: {', '.join(more)}")
