"""Paired measurement of a trained network: further training steps, one block in each turn."""

from collections.abc import Iterator
from typing import Any

from runmanager.tracking.lifecycle.outcome import divergence_of
from runmanager.tracking.run import ActiveRun
from runmanager.training.loading.loaders import EpochLoader
from runmanager.training.loop import tracker, train_epoch
from runmanager.training.step.stepper import Stepper

__all__ = ["endless_batches", "measure_in_turns"]


def measure_in_turns(
    run: ActiveRun,
    stepper: Stepper,
    loader: EpochLoader,
    *,
    first_epoch: int,
    num_workers: int,
    block_steps: int | None,
) -> None:
    """Continue training in measured turns until no more are granted; record only the turns. Skip a diverged run.

    A turn is `block_steps` steps; None chooses the steps that take a tenth of a second. With workers a turn is a whole
    epoch, because in the middle of one they would load ahead during the turns of other runs. The learning rate is
    constant.

    Raises `UsageError` for a run without turns.
    """
    if not run.history or divergence_of(run.history[-1]) is not None:
        return
    epoch = run.unrecorded_epoch()
    batches = run.measured_batches(
        endless_batches(loader, first_epoch),
        num_steps=len(loader) if num_workers else block_steps,
        most_steps=len(loader),
        leads_in=not num_workers,
    )
    train_epoch(stepper, epoch.batches(batches), track=tracker(epoch.track, stepper.loss))


def endless_batches(loader: EpochLoader, epoch: int) -> Iterator[Any]:
    """Yield the batches of epoch number `epoch` and of all that follow."""
    while True:
        loader.set_epoch(epoch)
        yield from loader
        epoch += 1
