"""Transformers: `Trainer(callbacks=[RunManagerCallback()])` records a training, with its phases, as a run.

```
Trainer                            here
on_train_begin                     the run starts
on_epoch_begin                     an epoch begins
on_step_begin, on_step_end         what lies between is `compute`; what lies before is `data`
the first on_prediction_step       `eval` began when the part before ended: its start has no event
on_evaluate                        `eval` ends
on_log                             values of the open epoch; without one, of the whole run
on_save                            `tracking`
on_epoch_begin, on_train_end       the epoch before is recorded: by then it is evaluated and its values are logged
```

The dataloader moves batches to the device as they are fetched, so `transfer` is part of `data`. Of several ranks each
measures its own part, and rank 0 records all of them.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from runmanager.integrations.framework_run import FrameworkRun, missing_package, settings_of_hyperparameters
from runmanager.tracking.inactive_run import InactiveRun
from runmanager.tracking.introspect.loader_inspection import count_samples
from runmanager.tracking.run import ActiveRun

try:
    from transformers import TrainerCallback
except ImportError as transformers_error:
    raise missing_package("transformers", transformers_error) from None

__all__ = ["RunManagerCallback", "chosen_arguments"]

_NOTHING_COMPUTED = ("_dir", "_path", "_token", "_id", "name", "_for_metrics", "from_checkpoint")
_NO_SETTINGS = frozenset(
    ("disable_tqdm", "do_eval", "do_predict", "do_train", "local_rank", "project", "report_to", "deepspeed_plugin")
)
_NO_SETTING_BEGINS = ("log_", "logging_", "save_", "push_to_hub", "hub_", "ddp_", "skip_memory", "include_")
_NOT_VALUES = ("epoch", "total_flos", "_runtime", "_samples_per_second", "_steps_per_second", "_tokens_per_second")
_NO_TRANSFER = (
    "the time of transfers is part of `data_seconds`: a Trainer's dataloader moves its batches as it reads them"
)


class RunManagerCallback(TrainerCallback):
    """Records the training of a Trainer: its phases and epochs, and what it logs.

    `Trainer(…, callbacks=[RunManagerCallback()])`. In a cell of a sweep the run is the cell's; anywhere else it is a
    sweep of one run below `outputs/`, or in the folder `root`. Its settings are the `TrainingArguments` that differ
    from their defaults, without those that say where to write and what to report.

    The loss is the one that the Trainer logs. The bridge makes it log at the end of each epoch too, so that the
    epoch's loss is the mean over its steps.
    """

    def __init__(self, root: str | Path | None = None) -> None:
        self._bridge = FrameworkRun(root)
        self._counter: _SampleCounter | None = None
        self._window = _LossWindow()

    @property
    def run(self) -> ActiveRun | InactiveRun | None:
        """The run, for everything that it offers; None until a training begins."""
        return self._bridge.run

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Start the run."""
        bridge = self._bridge
        bridge.start(args.device, chosen_arguments(args), model)
        if bridge.is_kept:
            control.should_training_stop = True
            return
        if isinstance(bridge.run, ActiveRun):
            bridge.run.note(_NO_TRANSFER)
        self._window = _LossWindow(state.global_step)
        self._counter = _SampleCounter(model, compiled=args.torch_compile)
        bridge.begin_training(_number(state), state.num_train_epochs)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Record the epoch before, and begin this one."""
        self._close()
        if not self._bridge.begin_epoch(_number(state)):
            control.should_training_stop = True

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin a step: the batches of all its parts have arrived."""
        if self._bridge.loop is not None:
            self._bridge.loop.begin_step()

    def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count the samples of a part of a step."""
        if self._counter is not None:
            self._counter.end_batch()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count a step."""
        if self._counter is not None:
            self._counter.end_batch()
            nominal = args.train_batch_size * args.gradient_accumulation_steps
            self._bridge.step(None, self._counter.take(nominal))

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Begin an evaluation at its first batch, with the time since the part before."""
        if self._bridge.loop is not None:
            self._bridge.loop.begin_evaluation()
            self._bridge.loop.batch_evaluated()

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End an evaluation."""
        if self._bridge.loop is not None:
            self._bridge.loop.end_evaluation()

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        """Log the metrics of a test."""
        self._bridge.log(_values(metrics or {}), step=state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Log values; the mean loss since the log before is added up for the epoch."""
        if self._bridge.loop is not None:
            self._bridge.loop.passed("tracking")
        values = _values(logs or {})
        if "loss" in values:
            self._window.add(float(values.pop("loss")), state.global_step)
        if "train_runtime" in (logs or {}):  # the last log: its loss is the mean over the whole training
            self._bridge.summarize(values)
        else:
            self._bridge.log(values, step=state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count the time in which a checkpoint was saved."""
        if self._bridge.loop is not None:
            self._bridge.loop.passed("tracking")

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the loop over the epoch's batches, and ask for the loss of those that were not logged."""
        if self._bridge.loop is not None:
            self._bridge.end_loop()
            control.should_log = True

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Record the last epoch, and why there is none after it."""
        self._close()
        if self._counter is not None:
            self._counter.remove()
            self._counter = None
        run = self._bridge.run
        if isinstance(run, ActiveRun) and state.global_step < state.max_steps:
            run.stop_early("the Trainer was asked to stop")

    def _close(self) -> None:
        if self._bridge.loop is not None and (loss := self._window.take()) is not None:
            self._bridge.log({"loss": loss})
        self._bridge.end_epoch()


def _number(state: Any) -> int:
    """Return the number of the epoch that begins, or that a resumed training continues."""
    return int((state.epoch or 0.0) + 1e-6) + 1


def _values(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was logged but for the Trainer's own times and rates."""
    return {name: value for name, value in logs.items() if not name.endswith(_NOT_VALUES)}


def chosen_arguments(args: Any) -> dict[str, Any]:
    """Return the `TrainingArguments` that differ from their defaults, as settings; no places and reports."""
    plain = args.to_dict()
    fields = (field for field in dataclasses.fields(args) if field.init and _is_setting(field.name))
    chosen = (field.name for field in fields if _is_chosen(args, field))
    return settings_of_hyperparameters({name: plain[name] for name in chosen})


def _is_chosen(args: Any, field: "dataclasses.Field[Any]") -> bool:
    """Return whether an argument has another value than by default.

    A default None may have become an empty value or an object of defaults. No other arguments are created to compare
    with, as that would reset the state of the process that the Trainer depends on.
    """
    value, default = getattr(args, field.name), field.default
    if field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    if value == default or not (value or default) or (field.name == "fsdp_config" and not args.fsdp):
        return False
    return not (default is None and dataclasses.is_dataclass(value) and value == type(value)())  # type: ignore[misc]


def _is_setting(name: str) -> bool:
    return name not in _NO_SETTINGS and not name.startswith(_NO_SETTING_BEGINS) and not name.endswith(_NOTHING_COMPUTED)


class _LossWindow:
    """The mean loss of the steps of an epoch, from the means that the Trainer logs."""

    def __init__(self, step: int = 0) -> None:
        self._last = self._begun = step
        self._total = 0.0

    def add(self, mean: float, step: int) -> None:
        """Add the mean loss of the steps up to `step`."""
        self._total += mean * (step - self._last)
        self._last = step

    def take(self) -> float | None:
        """Return the mean since the last call; None without steps."""
        steps, total = self._last - self._begun, self._total
        self._begun, self._total = self._last, 0.0
        return total / steps if steps else None


class _SampleCounter:
    """Counts the samples of a step by the inputs of the model, one call for each batch.

    A `compiled` model is left alone, as a hook would break its graph; each of its batches counts as a full one.
    """

    def __init__(self, model: torch.nn.Module | None, *, compiled: bool) -> None:
        self._samples: int | None = 0
        self._batch: int | None = 0  # None where it is not known, 0 before it is seen
        self.remove: Callable[[], None] = lambda: None
        if model is not None and not compiled:
            self.remove = model.register_forward_pre_hook(self._see, with_kwargs=True).remove

    def _see(self, module: torch.nn.Module, inputs: Any, named: Any) -> None:
        if module.training and torch.is_grad_enabled() and self._batch == 0:
            self._batch = count_samples(inputs or named)

    def end_batch(self) -> None:
        """End a batch, whose samples were seen at its first call of the model."""
        if self._samples is not None:
            self._samples = None if self._batch is None else self._samples + self._batch
        self._batch = 0

    def take(self, nominal: int) -> int | None:
        """Return the samples since the last call, None if they are not known; `nominal` if no batch was seen."""
        samples, self._samples = self._samples, 0
        return nominal if samples == 0 else samples
