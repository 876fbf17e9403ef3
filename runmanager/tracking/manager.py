"""`RunManager`: begins and records the runs of a sweep, by context managers or by the tutorials' calls."""

import datetime
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec
import torch

from runmanager.errors import DeviceUnavailableError, RecordError, UsageError
from runmanager.records.files.file_errors import require_creatable, require_current_folder
from runmanager.records.files.paths import RunPaths, SweepPaths, folder_name
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.host.standard_streams import show_line
from runmanager.records.run.heartbeat import SILENT_AFTER_SECONDS, HeartbeatObserver, timeout_faults
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.settings.secrets import declare_secrets
from runmanager.records.settings.signature import readable_name, short_signature, signature
from runmanager.records.settings.values import flatten, plain_settings
from runmanager.records.storage.reader import Damage, read_epochs, read_record, read_sweep, read_tolerantly, run_name
from runmanager.records.storage.run_folder import RunFolder
from runmanager.records.sweep.sweep_record import (
    SweepCommand,
    fresh_sweep_folder,
    plan_cell,
    read_sweep_record,
    varying_settings,
    write_cells,
)
from runmanager.text import error_line
from runmanager.tracking.checkpoint.training_state import loop_checkpointer
from runmanager.tracking.device.devices import resolve_device
from runmanager.tracking.environment.cell_process import refuse_several_ranks
from runmanager.tracking.environment.code_hashes import hash_user_code
from runmanager.tracking.environment.environment import capture_environment, command_line, hydra_choices
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.epoch_metrics.prediction_task import PredictionOptions
from runmanager.tracking.epoch_recorder import RunPlace
from runmanager.tracking.inactive_run import InactiveRun
from runmanager.tracking.introspect.loader_inspection import count_samples
from runmanager.tracking.lifecycle.finalizers import write_tables_if_begun, write_tables_when_dropped
from runmanager.tracking.lifecycle.open_run import Reuse, continue_run, find_shorter, open_run
from runmanager.tracking.options import RunOptions, TensorBoardOptions, declared_directions, larger_is_better
from runmanager.tracking.ranks.run_ranks import RunRanks
from runmanager.tracking.run import ActiveRun
from runmanager.tracking.sinks import ConsoleSink, Sink
from runmanager.tracking.tensorboard.sink import default_sinks, with_settings

if TYPE_CHECKING:
    from runmanager.results.result_files import TableUpdater


class RunManager:
    """Times and records the runs of one sweep folder, in a custom training loop.

    ```
    manager = RunManager("outputs/mine")
    for params in expand_grid(lr=[0.1, 0.01], device=["cpu", "cuda"]):
        with manager.run(params, network, loader) as run:
            for epoch in run.epochs(5):
                for images, labels in epoch.batches(loader):    # timed, already on the device
                    ...
                    epoch.track(loss, preds, labels)            # stays on the device
    manager.save("epochs_table")
    ```

    `root` is the sweep's folder; the default is a new dated folder under `outputs/`. `overwrite` repeats finished runs
    and keeps their old files in attempts/. `sinks` replaces all sinks; by default each run logs to TensorBoard as
    `tensorboard` says, to its run.log, and to standard output if `console`. A run that is `running` on another host is
    taken over after `heartbeat_timeout` seconds without a heartbeat. `secrets` names settings whose text is masked in
    what is written, for this process, besides `password`, `secret`, `api_key`, `access_token` and `auth_token`.
    The report is written when the manager is dropped or the process ends, the other tables at each run's end; with
    `console` the sweep's folder is named then, and the command that shows it. Several threads may have a run at once.
    Raises `UsageError` for a timeout too short for a living run, for a `root` that cannot be written, and in a process
    that is one of several ranks.
    """

    _in_program = False
    _ranks: RunRanks | None = None
    _default_device: str | msgspec.UnsetType | None = msgspec.UNSET

    def __init__(
        self,
        root: str | Path | None = None,
        *,
        overwrite: bool = False,
        tensorboard: TensorBoardOptions | None = None,
        console: bool = True,
        sinks: Sequence[Sink] | None = None,
        heartbeat_timeout: float = SILENT_AFTER_SECONDS,
        secrets: Sequence[str] = (),
    ) -> None:
        self._refuse_ranks()
        declare_secrets(secrets)
        if faults := timeout_faults("heartbeat_timeout", heartbeat_timeout):
            raise UsageError(faults[0])
        require_current_folder()
        place = Path("outputs" if root is None else root).absolute()  # a program may change its folder later
        require_creatable("`root`", place, way_out="give another one")
        self.paths = fresh_sweep_folder(place) if root is None else SweepPaths(place)
        self._overwrite = overwrite
        self._tensorboard = tensorboard
        self._active: ActiveRun | InactiveRun | None = None  # of the tutorials' calls, and its epoch
        self._epoch: Epoch | None = None
        self._console = console
        self._own_sinks = sinks
        self._heartbeat_timeout = heartbeat_timeout
        self._stored: dict[str, tuple[RunPaths, str]] | None = None
        self._begun: list[RunPaths] = []
        self._tables: TableUpdater | None = None
        # The report draws figures, which takes a second: so once, when the manager is dropped, not after every run.
        write_tables_when_dropped(self, self.paths, self._begun, shows=console and sinks is None)

    def run(
        self,
        params: Any,
        network: torch.nn.Module | None = None,
        loader: Any = None,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        state: Mapping[str, Any] | None = None,
        options: RunOptions | None = None,
        can_resume: bool = False,
        unsigned: tuple[str, ...] = (),
    ) -> ActiveRun | InactiveRun:
        """Claim the folder of a run with `params`: a mapping, named tuple, dataclass or `argparse.Namespace`.

        Without `device` in `params` the run is on the CPU. Entering the run moves the network to its device and begins
        the sinks. To record errors in building the network too, leave it out here and call `run.begin(network, …)`.
        If the device is missing, the run is recorded as `skipped`; if it is finished, it is kept unless overwritten. In
        both cases it yields no epochs. With `optimizer` the learning rate is logged. `state` has objects with
        `state_dict()` and `load_state_dict()`, or generators, by name: they are saved with the network and the random
        states after each epoch, and a killed run continues after its last epoch.
        `can_resume` promises that `begin` will get a checkpointer, so that a killed run can be resumed. A run that is
        `running` on another host is watched for up to `heartbeat_timeout` first. `unsigned` names top-level settings
        that do not belong to the run's identity.
        Raises `UsageError` for invalid settings, for a `state` that cannot be stored, for early stopping by a metric of
        unknown direction, and in one of several ranks; `RunBusyError` if a living process owns the run.
        """
        options = options or RunOptions()
        checkpointer = loop_checkpointer(network, loader, state, optimizer=optimizer, options=options)
        given: Any = {"optimizer": optimizer, "checkpointer": checkpointer}
        return self._open(
            params,
            options,
            can_resume=can_resume or state is not None,
            unsigned=unsigned,
            on_enter=None if network is None else lambda run: run.begin(network, loader, **given),
        )

    def begin_run(self, run: Any, network: torch.nn.Module, loader: Any) -> bool:
        """Begin a run with the settings `run`, a named tuple from `RunBuilder.get_runs`.

        Histograms of weights and gradients are on, unless the manager was given `tensorboard` options.
        Returns False if the run is finished already or its device is missing: the other calls are then still allowed,
        and record nothing.
        """
        if self._active is not None:
            raise UsageError("begin_run() must come after the end_run() of the run before, got none; call end_run().")
        if self._tensorboard is None:
            self._tensorboard = TensorBoardOptions(histograms=True)
        begun = self.run(run)
        try:
            begun.begin(network, loader)
        except BaseException as error:
            begun.end(error)
            raise
        self._active = begun
        return isinstance(begun, ActiveRun)

    def begin_epoch(self) -> None:
        """Start the clock of the next epoch."""
        run = self._running("begin_epoch")
        self._between_epochs("begin_epoch")
        self._epoch = run.begin_epoch(is_all_training=True)

    def track_loss(self, loss: torch.Tensor, batch: Any, *, samples: int | None = None) -> None:
        """Count a step's mean loss; `batch` is (images, labels), and the length of images is the number of samples.

        A batch of another kind is counted where its tensors leave no doubt (see `count_samples`), or by `samples`; else
        the epoch has no number of samples, and a note says so.
        """
        epoch = self._running_epoch("track_loss")
        epoch.show_first_batch(batch)
        epoch.track_loss(loss, count_samples(batch) if samples is None else samples)

    def track_num_correct(
        self, preds: torch.Tensor, labels: torch.Tensor, **options: Unpack[PredictionOptions]
    ) -> None:
        """Count the correct predictions: logits (batch, classes) for labels (batch,).

        `task`, `class_dim` and `ignore_index` select other layouts, as in `Epoch.track`.
        """
        self._running_epoch("track_num_correct").track_predictions(preds, labels, **options)

    def end_epoch(self) -> None:
        """Stop the clock and record the epoch."""
        epoch = self._running_epoch("end_epoch")
        self._epoch = None
        self._running("end_epoch").end_epoch(epoch)

    def end_run(self) -> None:
        """Record the run's end and write the sweep's tables."""
        run = self._running("end_run")
        self._between_epochs("end_run")
        self._active = None
        run.end()

    def _running(self, call: str) -> ActiveRun | InactiveRun:
        if self._active is None:
            raise UsageError(f"{call}() must come between begin_run() and end_run(), got no run; call begin_run().")
        return self._active

    def _between_epochs(self, call: str) -> None:
        if self._epoch is not None:
            raise UsageError(f"{call}() must come after the end_epoch() of the epoch before; call end_epoch() first.")

    def _running_epoch(self, call: str) -> Epoch:
        self._running(call)
        if self._epoch is None:
            raise UsageError(f"{call}() must come between begin_epoch() and end_epoch(); call begin_epoch() first.")
        return self._epoch

    def _open(
        self,
        params: Any,
        options: RunOptions,
        *,
        can_resume: bool = False,
        unsigned: tuple[str, ...] = (),
        on_enter: Callable[[ActiveRun], None] | None = None,
    ) -> ActiveRun | InactiveRun:
        """Claim the folder of a run, which `on_enter` begins."""
        self._refuse_ranks()
        if options.early_stop.metric is not None:
            larger_is_better(options.early_stop.metric)  # raises before anything is written
        settings = plain_settings(params)
        if (left_out := self._left_out(settings, unsigned)) is not None:
            return left_out
        paths, record = self._new_record(settings, unsigned)
        lacks = ""
        try:
            device, keeps_place = self._place(settings)
        except DeviceUnavailableError as error:
            lacks = str(error)
        else:
            code = hash_user_code(settings, is_built_in=False)
            record = msgspec.structs.replace(record, environment=capture_environment(device, code=code))
            self._announce_watching(paths)
        observer = HeartbeatObserver(limit_seconds=self._heartbeat_timeout)
        opened = open_run(paths, record, Reuse(can_resume, self._overwrite), lacks=lacks, observer=observer)
        folder = opened.folder
        if not lacks or folder.record.status is Status.SKIPPED:
            self._begun.append(paths)
        if opened.left:
            again = "" if lacks else "; RunManager(…, overwrite=True) runs it again"
            self._show(f"{folder.record.name}: {opened.left}{again}")
            if lacks:
                self._write_tables()
            return self._inactive_run(folder)
        folder.continues = folder.continues or (can_resume and self._continue(folder, options))
        return ActiveRun(
            RunPlace(folder, device, keeps_place, self._ranks),
            self._sinks(),
            options,
            show=self._show,
            on_enter=on_enter,
            on_end=self._write_tables,
            in_program=self._in_program,
        )

    def _continue(self, folder: RunFolder, options: RunOptions) -> bool:
        """Let a new run continue a finished one with fewer epochs, as `options` ask; return whether it does."""
        if not options.extends_epochs:
            return False
        shorter = find_shorter(read_sweep(self.paths, epochs_of=lambda _: False).runs, folder.record)
        if shorter is None:
            return False
        self._show(f"{folder.record.name}: continues {run_name(shorter)}")
        return continue_run(folder, shorter, with_settings=with_settings, keep_best=options.keep_best)

    def _refuse_ranks(self) -> None:
        refuse_several_ranks()

    def _place(self, settings: Mapping[str, Any]) -> tuple[torch.device, bool]:
        """Return a run's device and whether its network stays where it is. Raises `DeviceUnavailableError`."""
        return resolve_device(str(settings.get("device") or "cpu")), False

    def _sinks(self) -> Sequence[Sink]:
        if self._own_sinks is not None:
            return self._own_sinks
        return [*default_sinks(self._tensorboard), *([ConsoleSink()] if self._console else [])]

    def _new_record(self, settings: dict[str, Any], unsigned: tuple[str, ...]) -> tuple[RunPaths, RunRecord]:
        """Return the folder, stored already or new, and the record of a run that is about to begin."""
        identity = signature(settings, unsigned=unsigned)
        paths, name = self._find(identity)
        choices = hydra_choices(settings)
        run = paths.name if paths else ""
        cell = plan_cell(identity, run, settings, unsigned=unsigned, choices=choices, name=name)
        if not paths:
            varying = varying_settings(read_sweep_record(self.paths), cell)
            name = f"{readable_name(flatten(settings), distinguishing=varying)}-{short_signature(identity)}"
            cell = msgspec.structs.replace(cell, run=folder_name(name), name=name)
        plan = write_cells(self.paths, [cell], SweepCommand(command_line(), default_device=self._default_device))
        if not paths:  # another process may have named the cell first
            cell = next(each for each in plan.planned if each.signature == identity)
        record = RunRecord(
            name=cell.name,
            signature=identity,
            status=Status.RUNNING,
            config=settings,
            started_at=datetime.datetime.now(datetime.UTC).isoformat(),
            owner=ProcessIdentity.current(),
            unsigned=unsigned,
            better=declared_directions() or msgspec.UNSET,
            choices=choices or msgspec.UNSET,
        )
        return paths or self.paths.run(cell.run), record

    def _left_out(self, settings: dict[str, Any], unsigned: tuple[str, ...]) -> InactiveRun | None:
        """Return a stand-in for a run that was removed from the sweep by command; None for any other run."""
        plan = None if self._overwrite else read_sweep_record(self.paths)
        identity = signature(settings, unsigned=unsigned)
        if plan is None or identity not in plan.removed:
            return None
        cell = next(each for each in plan.planned if each.signature == identity)
        self._show(f"{cell.name}: was removed, left out; RunManager(…, overwrite=True) runs it again")
        record = RunRecord(name=cell.name, signature=identity, status=Status.PENDING, config=settings)
        return self._inactive_run(RunFolder(self.paths.run(cell.run), record))

    def _find(self, identity: str) -> tuple[RunPaths | None, str]:
        """Return folder and name of the stored run with this signature, or (None, "")."""
        if self._stored is None:
            stored = read_sweep(self.paths, epochs_of=lambda _: False).runs  # only their identities
            self._stored = {run.signature: (run.paths, run.name) for run in stored}
        return self._stored.get(identity, (None, ""))

    def _inactive_run(self, folder: RunFolder) -> InactiveRun:
        folder.leave()
        try:
            history = read_epochs(folder.paths, folder.record)
        except RecordError as error:
            self._show(str(error))
            history = []
        return InactiveRun(folder, history, show=self._show)

    def _show(self, line: str) -> None:
        if self._console and self._own_sinks is None:
            show_line(line)

    def _announce_watching(self, paths: RunPaths) -> None:
        """Print why claiming the folder may take a while."""
        stored = read_record(paths) if paths.record.exists() else None
        if stored is not None and stored.is_running_elsewhere and stored.owner is not None:
            self._show(
                f"{stored.name}: is running on {stored.owner.host}; taken over if it shows no sign of life for "
                f"{self._heartbeat_timeout:g} s"
            )

    def _write_tables(self) -> None:
        from runmanager.results.result_files import TableUpdater

        self._tables = self._tables or TableUpdater(self.paths)
        try:
            self._tables.run_ended()
        except Exception as error:  # the run is recorded: nothing of it is lost, and its program goes on
            self._show(f"{self.paths.name}: the tables could not be written: {error_line(error)}")

    def save(self, file_name: str | Path) -> None:
        """Write `file_name`.csv and .json: one row per epoch of this manager's runs, in order of start.

        Missing folders in the name are created. Damaged runs are left out, with a line each.
        """
        from runmanager.results.result_files import write_epochs_table

        damaged: list[Damage] = []
        runs = [read_tolerantly(paths, damaged) for paths in dict.fromkeys(self._begun)]
        for each in damaged:
            self._show(f"{each.message}; it is left out of {file_name}")
        write_epochs_table([run for run in runs if run is not None and not run.is_damaged], Path(file_name))
        write_tables_if_begun(self.paths, self._begun)
