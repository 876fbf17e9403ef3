"""Paired measurement of a trained network: further steps of the same loop, a block of them a turn."""

from collections.abc import Iterator
from typing import Any

from runmanager.errors import UsageError
from runmanager.tracking.lifecycle.outcome import divergence
from runmanager.tracking.run import ActiveRun
from runmanager.training.loading.loaders import EpochLoader
from runmanager.training.loop import train_epoch
from runmanager.training.step.stepper import Stepper

__all__ = ["measure_in_turns"]


def measure_in_turns(
    run: ActiveRun,
    stepper: Stepper,
    loader: EpochLoader,
    *,
    first_epoch: int,
    num_workers: int,
    block_steps: int | None,
) -> None:
    """Train on in measured turns until it is enough; nothing of it is recorded but the turns. Not after a divergence.

    A turn is `block_steps` steps, with None as many as take a tenth of a second. With workers it is a whole epoch: they
    load ahead, and in the middle of one they would do so while others have the machine. The learning rate stays.

    Raises `UsageError` for a run that takes no turns.
    """
    if run.turns is None:
        raise UsageError("A run must take turns to be measured in them, got none; give RunOptions(turns=…).")
    if not run.history or divergence(run.history[-1]) is not None:
        return
    epoch = run.unrecorded_epoch()
    blocks = run.turns.blocks(
        _endless(loader, first_epoch),
        epoch.timer,
        num_steps=len(loader) if num_workers else block_steps,
        most_steps=len(loader),
        leads_in=not num_workers,
    )
    train_epoch(stepper, epoch.batches(blocks), track=epoch.track)


def _endless(loader: EpochLoader, epoch: int) -> Iterator[Any]:
    while True:
        loader.set_epoch(epoch)
        yield from loader
        epoch += 1
