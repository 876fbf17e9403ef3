"""The tutorials' calls of a manager: one run at a time, begun and ended by hand."""

from abc import ABC, abstractmethod
from typing import Any, Unpack

import torch

from runmanager.errors import UsageError
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.epoch_metrics.prediction_task import PredictionOptions
from runmanager.tracking.introspect.loader_inspection import count_samples
from runmanager.tracking.options import TensorBoardOptions
from runmanager.tracking.run import ActiveRun, InactiveRun

__all__ = ["TutorialCalls"]


class TutorialCalls(ABC):
    """The calls of the tutorials' manager. Each raises `UsageError` out of order."""

    def __init__(self, tensorboard: TensorBoardOptions | None) -> None:
        self._tensorboard = tensorboard
        self._active: ActiveRun | InactiveRun | None = None
        self._epoch: Epoch | None = None

    @abstractmethod
    def run(self, params: Any) -> ActiveRun | InactiveRun:
        """Claim the folder of a run with these settings."""

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
