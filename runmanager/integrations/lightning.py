"""Lightning: `Trainer(logger=RunManagerLogger())` records a training, with its phases, as a run.

```
lightning                          here
log_hyperparams, log_graph         the run starts
on_train_epoch_start               an epoch begins
strategy.batch_to_device           ends `data`, and then `transfer`
strategy.on_train_batch_start      begins a step, if no batch has
on_train_batch_end                 ends `compute`; the loss stays on its device
on_validation_start, …_end         `eval`, also within an epoch; the sanity check is none
save_checkpoint                    `tracking`
log_metrics                        values of the open epoch; without one, as from a test, of the whole run
on_train_epoch_start, on_train_end the epoch before is recorded: by then its values are logged
on_exception                       the end of the run
```

Of several ranks each measures its own part, and rank 0 records all of them.
"""

import datetime
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from runmanager.integrations.framework_run import FrameworkRun, missing_package, settings_of_hyperparameters
from runmanager.tracking.inactive_run import InactiveRun
from runmanager.tracking.introspect.loader_inspection import count_samples
from runmanager.tracking.run import ActiveRun

try:
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        # Of the same framework's two packages, each of which refuses the other's objects, the one in use.
        from pytorch_lightning import Callback
        from pytorch_lightning.loggers import Logger
    else:
        from lightning.pytorch import Callback
        from lightning.pytorch.loggers import Logger
except ImportError as lightning_error:
    try:
        from pytorch_lightning import Callback
        from pytorch_lightning.loggers import Logger
    except ImportError:
        raise missing_package("lightning", lightning_error) from None

__all__ = ["RunManagerCallback", "RunManagerLogger"]


class RunManagerCallback(Callback):
    """Records the training of a Trainer: its phases and epochs, and what is logged, by a logger of its own.

    `Trainer(callbacks=[RunManagerCallback()])` is the same as `Trainer(logger=RunManagerLogger())`, which adds one, and
    leaves the other loggers as they are. In a cell of a sweep the run is the cell's; anywhere else it is a sweep of
    one run below `outputs/`, or in the folder `root`.
    """

    # What Lightning cannot call it skips: else each of them would cost a context and four calls in every step.
    on_before_zero_grad = on_before_backward = on_after_backward = on_before_optimizer_step = None
    on_train_batch_start = None

    def __init__(self, root: str | Path | None = None) -> None:
        self._bridge = FrameworkRun(root, self._without_trainer)
        self._trainer: Any = None

    @property
    def run(self) -> ActiveRun | InactiveRun | None:
        """The run, for everything that it offers; None until a training begins."""
        return self._bridge.run

    @contextmanager
    def _without_trainer(self) -> Iterator[None]:
        """Take the trainer out of the module, which may be copied now: a copy of it would be one of all of this."""
        module = self._trainer.lightning_module
        module.trainer = None
        try:
            yield
        finally:
            module.trainer = self._trainer

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Add a logger, unless there is one."""
        if not trainer.fast_dev_run and not any(isinstance(each, RunManagerLogger) for each in trainer.loggers):
            trainer.loggers = [*trainer.loggers, RunManagerLogger(self)]

    def start(self, trainer: Any, params: Mapping[str, Any] | None) -> None:
        """Start the run, once the trainer has placed the network on its device."""
        self._trainer = trainer
        if self not in trainer.callbacks:
            trainer.callbacks.insert(0, self)  # so that a part ends before the work of other callbacks
        self._bridge.start(trainer.strategy.root_device, params, trainer.lightning_module)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Record the number of epochs, and listen to what Lightning passes to no callback."""
        bridge = self._bridge
        if bridge.run is None:
            return
        if bridge.is_kept:
            trainer.should_stop = True
            return
        is_planned = trainer.max_epochs is not None and trainer.max_epochs >= 0
        bridge.begin_training(trainer.current_epoch + 1, trainer.max_epochs if is_planned else None)
        self._listen(trainer)

    def _listen(self, trainer: Any) -> None:
        strategy, bridge = trainer.strategy, self._bridge
        move, begin, save = strategy.batch_to_device, strategy.on_train_batch_start, trainer.save_checkpoint

        def batch_to_device(*arguments: Any, **keywords: Any) -> Any:
            if (loop := bridge.loop) is None or not loop.batch_fetched():
                return move(*arguments, **keywords)
            batch = move(*arguments, **keywords)
            loop.batch_moved()
            bridge.show_batch(batch)
            return batch

        def on_train_batch_start(batch: Any, batch_idx: int) -> None:
            if bridge.loop is not None and bridge.loop.begin_step():  # Lightning has moved none: the step reads it
                bridge.show_batch(batch)
            begin(batch, batch_idx)

        def save_checkpoint(*arguments: Any, **keywords: Any) -> Any:
            with bridge.saving():
                return save(*arguments, **keywords)

        strategy.batch_to_device, strategy.on_train_batch_start = batch_to_device, on_train_batch_start
        trainer.save_checkpoint = save_checkpoint

    def _stop_listening(self, trainer: Any) -> None:
        for owner, name in (
            (trainer.strategy, "batch_to_device"),
            (trainer.strategy, "on_train_batch_start"),
            (trainer, "save_checkpoint"),
        ):
            vars(owner).pop(name, None)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Record the epoch before, and begin this one."""
        if not self._bridge.begin_epoch(trainer.current_epoch + 1):
            trainer.should_stop = True

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count a step, with the loss that `training_step` returned."""
        if self._bridge.loop is None:
            return
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if not (loss.numel() == 1 if isinstance(loss, torch.Tensor) else isinstance(loss, int | float)):
            loss = None
        elif trainer.accumulate_grad_batches > 1 and pl_module.automatic_optimization:
            loss = loss * trainer.accumulate_grad_batches  # by which Lightning has divided it
        self._bridge.step(loss, count_samples(batch))

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin an evaluation, with the time in which its loader was prepared."""
        if self._bridge.loop is not None and not trainer.sanity_checking:
            self._bridge.loop.begin_evaluation()

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        """Count progress."""
        if self._bridge.loop is not None:
            self._bridge.loop.batch_evaluated()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """End an evaluation."""
        if self._bridge.loop is not None:
            self._bridge.loop.end_evaluation()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """End the loop over the epoch's batches; its values are yet to be logged."""
        self._bridge.end_loop()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Record the last epoch, and why there is none after it."""
        run, is_early = self._bridge.run, trainer.should_stop
        self._stop_listening(trainer)
        if isinstance(run, ActiveRun):
            self._bridge.end_epoch()
            if is_early:
                run.stop_early("the Trainer was asked to stop")
            elif trainer.max_steps != -1 and trainer.global_step >= trainer.max_steps:
                run.stop_early(f"max_steps={trainer.max_steps} was reached")

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """End the run as the exception says."""
        self._stop_listening(trainer)
        if self._trainer is not None:
            self._bridge.end(exception)


class RunManagerLogger(Logger):
    """Records the training of a Trainer: what is logged and, through a callback of its own, phases and epochs.

    `Trainer(logger=RunManagerLogger())`. In a cell of a sweep the run is the cell's; anywhere else it is a sweep of one
    run below `outputs/`, or in the folder `root`. Its settings are the hyperparameters that the module or the data
    module has saved (`save_hyperparameters`), or without any those on the command line.
    """

    def __init__(self, root: str | Path | RunManagerCallback | None = None) -> None:
        super().__init__()
        self._callback = root if isinstance(root, RunManagerCallback) else RunManagerCallback(root)
        self._params: dict[str, Any] | None = None
        self._created_at = datetime.datetime.now()

    @property
    def run(self) -> ActiveRun | InactiveRun | None:
        """The run, for everything that it offers; None until a training begins."""
        return self._callback.run

    @property
    def name(self) -> str:
        """The first folder of checkpoints; none in a run's folder."""
        return "" if self.save_dir else "runmanager"

    @property
    def version(self) -> str:
        """The second folder of checkpoints; none in a run's folder."""
        return "" if self.save_dir else self._created_at.strftime("%Y-%m-%d_%H-%M-%S_%f")

    @property
    def save_dir(self) -> str | None:
        """The folder of the run, in which checkpoints lie by default; None while it is not known."""
        folder = self._callback._bridge.folder
        return None if folder is None else str(folder)

    def log_hyperparams(self, params: Any, *_: Any, **__: Any) -> None:
        """Keep the hyperparameters, which become the settings of a run that has not started."""
        self._params = (self._params or {}) | settings_of_hyperparameters(params)

    def log_graph(self, model: Any, input_array: Any = None) -> None:
        """Start the run of the trainer that `model` belongs to."""
        self._callback.start(model.trainer, self._params)

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log values of the open epoch; without one, as from a test, of the whole run."""
        values = {name: value for name, value in metrics.items() if name != "epoch"}
        self._callback._bridge.log(values, step=step)
