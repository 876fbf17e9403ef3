"""The built-in job: one cell's settings made into data, model and optimiser, trained and recorded as one run."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runmanager.errors import UsageError
from runmanager.records.paths import RunPaths
from runmanager.records.run import RunRecord
from runmanager.tracking.manager import RunManager
from runmanager.tracking.options import RunOptions, TurnTaker
from runmanager.tracking.randomness import seed_everything
from runmanager.tracking.run import ActiveRun, IdleRun
from runmanager.training.checkpoint import TrainingState
from runmanager.training.datasets import load_dataset
from runmanager.training.job_options import TrainingOptions
from runmanager.training.loaders import build_loaders
from runmanager.training.loop import evaluate_epoch, train_epoch
from runmanager.training.measure_options import PairedOptions
from runmanager.training.models import build_model
from runmanager.training.optimizers import build_optimizer
from runmanager.training.paired import measure_in_turns
from runmanager.training.schedulers import build_scheduler

__all__ = ["train_run"]


def train_run(
    manager: RunManager,
    options: TrainingOptions,
    *,
    params: Mapping[str, Any],
    folder: RunPaths,
    when_claimed: Callable[[ActiveRun], None],
    turns: TurnTaker | None = None,
) -> RunRecord:
    """Train one cell in its folder and return its record; `params` are its settings as they are to be stored.

    `when_claimed` is told as soon as the run has its folder, so that it can be interrupted and its output redirected.
    `turns` gives the run its turns where it is measured side by side. What goes wrong is in the record, and is raised.
    Raises `UsageError` for `measure=paired` without `turns`.
    """
    if isinstance(options.measure, PairedOptions) and turns is None:
        raise UsageError(
            "`measure` must be single where runs cannot take turns, got paired; use `hydra/launcher=local` and "
            "`hydra/sweeper=grid`."
        )
    run_options = RunOptions(options.log_every, options.measure.warmup_epochs, options.early_stop, turns)
    run = manager.run(params, folder=folder, can_resume=True, options=run_options)
    if isinstance(run, IdleRun):
        return run.record
    with run:
        when_claimed(run)
        _train(run, options)
    return run.record


def _train(run: ActiveRun, options: TrainingOptions) -> None:
    seed_everything(options.seed)
    data = load_dataset(options.dataset, data_root=Path(options.data_root), seed=options.seed)
    loaders = build_loaders(
        options.loader,
        data,
        batch_size=options.batch_size,
        eval_batch_size=options.eval_batch_size or options.batch_size,
        num_workers=options.num_workers,
        device=run.device,
        seed=options.seed,
        tell=run.note,
    )
    network = build_model(options.model, in_shape=data.in_shape, num_classes=data.num_classes).to(run.device)
    optimizer = build_optimizer(options.optimizer, network.parameters(), lr=options.lr)
    scheduler = build_scheduler(
        options.scheduler, optimizer, num_epochs=options.epochs, steps_per_epoch=len(loaders.train)
    )
    state = TrainingState(
        network,
        optimizer,
        scheduler,
        every=options.checkpoint.every,
        num_epochs=options.epochs,
        keep_best=options.checkpoint.keep_best,
        data=data,
    )
    run.begin(network, loaders.train, optimizer=optimizer, checkpointer=state)
    if options.evaluate_first:
        for epoch in run.evaluation_before_training():
            evaluate_epoch(network, epoch.eval_batches(loaders.validation), track=epoch.track_eval)
    after_step = scheduler.step if scheduler.step_interval == "step" else None
    for epoch in run.epochs(options.epochs):
        loaders.train.set_epoch(epoch.number)
        train_epoch(network, epoch.batches(loaders.train), optimizer, track=epoch.track, after_step=after_step)
        evaluate_epoch(network, epoch.eval_batches(loaders.validation), track=epoch.track_eval)
        if scheduler.step_interval == "epoch":
            scheduler.step()
    if isinstance(options.measure, PairedOptions):
        measure_in_turns(
            run,
            network,
            loaders.train,
            optimizer,
            first_epoch=options.epochs + 1,
            num_workers=options.num_workers,
            block_steps=options.measure.block_steps,
        )
