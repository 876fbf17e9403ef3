"""The training state of a run: saved after epochs and restored, with the random states and the run's progress."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import torch

from runmanager.errors import UsageError
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import EpochRecord
from runmanager.tracking.checkpoint.checkpoint_file import CheckpointError, read_state, write_state
from runmanager.tracking.checkpoint.custom_state import CustomState, plain_copy
from runmanager.tracking.device.devices import random_states, restore_random_states
from runmanager.tracking.options import Progress, RunOptions, is_better, larger_is_better, metric_value


class _Part(Protocol):
    """A component with a state, as a module or an optimizer."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object: ...


class _Best(msgspec.Struct, frozen=True):
    """The epoch with the best value of `metric` so far."""

    metric: str
    value: float
    record: EpochRecord


@dataclass(frozen=True)
class CheckpointRules:
    """When a checkpoint is due: every `every` epochs (0: never) and after the last of `num_epochs`.

    With `keep_best`, the name of a recorded metric, the weights of the best epoch are also kept, in best.pt; with
    `only_best` nothing else is.
    """

    every: int = 1
    num_epochs: int | None = None
    keep_best: str | None = None
    only_best: bool = False


class TrainingState:
    """Saves and restores everything that a resumed run needs to continue as an uninterrupted one would.

    `parts` are the components whose states are stored, by name: `model`, and what else changes in training; parts that
    are `added_later` may be missing in a checkpoint. `custom` is the state that the user of a custom loop has given.
    `facts` are plain values that both files get. Raises `UsageError` if it is not known which values of the metric are
    better.
    """

    def __init__(
        self,
        parts: Mapping[str, _Part],
        rules: CheckpointRules,
        *,
        custom: CustomState | None = None,
        facts: Mapping[str, Any] | None = None,
        added_later: tuple[str, ...] = (),
    ) -> None:
        if rules.keep_best is not None:
            larger_is_better(rules.keep_best)  # raises where that is not known, rather than after the first epoch
        self._parts = dict(parts)
        self._rules = rules
        self._custom = custom
        self._best: _Best | None = None
        self._facts = dict(facts or {})
        self._added_later = added_later
        self._random: dict[str, Any] | None = None

    @property
    def _device(self) -> torch.device | None:
        """The device of the model, whose random state is saved too; None for all, where there is no model."""
        if "model" not in self._parts:
            return None
        model: Any = self._parts["model"]
        parameter = next(model.parameters(), None)
        return torch.device("cpu") if parameter is None else parameter.device

    def observe(self, record: EpochRecord) -> None:
        """Note whether this epoch is the best so far."""
        value = metric_value(record, self._rules.keep_best) if self._rules.keep_best else None
        if self._rules.keep_best is None or value is None or not math.isfinite(value) or record.epoch == 0:
            return
        if is_better(self._rules.keep_best, value, self._best.value if self._best else None):
            self._best = _Best(self._rules.keep_best, value, record)

    def is_due(self, epoch: int) -> bool:
        """Whether to save after this epoch.

        The best epoch so far always is; otherwise a kill could leave best.pt with the weights of a lost epoch.
        """
        if self._rules.every == 0 or epoch == 0:
            return False
        if self._rules.only_best:
            return self._is_best(epoch)
        return epoch % self._rules.every == 0 or epoch == self._rules.num_epochs or self._is_best(epoch)

    def _is_best(self, epoch: int) -> bool:
        return self._best is not None and self._best.record.epoch == epoch

    def save(self, path: Path, progress: Progress) -> None:
        """Write the state atomically, and then best.pt in the same folder if this epoch is the best."""
        if not self._rules.only_best:
            self._save_all(path, progress)
        self._save_if_best(path, progress)

    def _save_all(self, path: Path, progress: Progress) -> None:
        state: dict[str, Any] = {name: part.state_dict() for name, part in self._parts.items()}
        if self._custom is not None:
            state["state"] = self._custom.state_dict(within_epoch=bool(progress.part))
        state |= {"random": random_states(self._device), "progress": msgspec.to_builtins(progress)}
        if self._best is not None:
            state["best"] = msgspec.to_builtins(self._best)
        write_state(path, state | self._facts)

    def _save_if_best(self, path: Path, progress: Progress) -> None:
        if not progress.part and progress.record is not None and self._is_best(progress.record.epoch):
            weights = {"model": self._parts["model"].state_dict()}
            if self._custom is not None:
                weights |= self._custom.weights()
            write_state(RunPaths(path.parent).best, weights | {"best": msgspec.to_builtins(self._best)} | self._facts)

    def resumes_within(self, loader: Any) -> bool:
        """Return whether an epoch over `loader` can continue in the middle, after the step just made."""
        return self._custom is not None and self._custom.resumes_within(loader)

    def is_complete(self, metric: Any) -> bool:
        """Return whether the state restores what an accumulator of torchmetrics has added up."""
        return self._custom is not None and self._custom.restores(metric)

    def load(self, path: Path) -> Progress:
        """Restore the state. Raises `CheckpointError` for one that does not fit, and leaves everything as it was."""
        state = read_state(path)
        before = self._snapshot()
        try:
            self._load_parts(state)
            progress = msgspec.convert(state["progress"], Progress)
            best = msgspec.convert(state["best"], _Best) if "best" in state else None
            restore_random_states(state["random"], self._device)
        except Exception as error:  # any component may refuse a foreign state in its own way
            self._load_parts(before)
            restore_random_states(before["random"], self._device)
            said = " ".join(f"{type(error).__name__}: {error}".split())  # torch tells the mismatch in its later lines
            raise CheckpointError(path, f"does not fit this run ({said})") from error
        if best is not None and best.metric == self._rules.keep_best:
            self._best = best
            self._save_if_best(path, progress)  # the run may have been killed between writing the two files
        self._random = state["random"]
        return progress

    def _snapshot(self) -> dict[str, Any]:
        before = {name: plain_copy(part.state_dict()) for name, part in self._parts.items()}
        if self._custom is not None:
            before["state"] = plain_copy(self._custom.state_dict(with_loaders=False))
        return before | {"random": copy.deepcopy(random_states(self._device))}

    def _load_parts(self, state: Mapping[str, Any]) -> None:
        for name, part in self._parts.items():
            if name in state or name not in self._added_later:
                part.load_state_dict(state[name])
        if self._custom is not None:
            self._custom.load_state_dict(state["state"])

    def epoch_begins(self) -> None:
        """Restore the random states once more: the program may have drawn numbers since the checkpoint was loaded."""
        if self._random is not None:
            restore_random_states(self._random, self._device)
            self._random = None


def loop_checkpointer(
    network: torch.nn.Module | None,
    loader: Any,
    state: Mapping[str, Any] | None,
    *,
    optimizer: torch.optim.Optimizer | None,
    options: RunOptions,
    allows_none: bool = False,
) -> TrainingState | None:
    """Return what saves and restores `state` with the network, and the best weights; None if neither is asked for.

    Where it `allows_none`, a state may come without a network.

    Raises `UsageError` for a state that cannot be stored, a metric of unknown direction, or without a network.
    """
    if state is None and options.keep_best is None:
        return None
    if network is None and (state is None or options.keep_best is not None or not allows_none):
        given = "state" if options.keep_best is None else "keep_best"
        raise UsageError(f"`{given}` must come with a network, got none; pass the network to the same call.")
    custom = None if state is None else CustomState(state, optimizer=optimizer, loader=loader)
    parts = {} if network is None else {"model": network}
    return TrainingState(parts, CheckpointRules(keep_best=options.keep_best, only_best=state is None), custom=custom)
