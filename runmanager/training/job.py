"""The built-in job: build data, model and optimiser from one cell's settings, and train them as one recorded run."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import Dataset

from runmanager.records.run.run_record import UNKNOWN_WORK
from runmanager.records.storage.run_folder import RunFolder
from runmanager.text import error_line, pluralize
from runmanager.tracking.checkpoint.training_state import CheckpointRules, TrainingState
from runmanager.tracking.device.devices import made_current, preserve_random_states, seed_everything
from runmanager.tracking.device.transfer import BatchCopier, SideStream, prefetch
from runmanager.tracking.epoch import Epoch
from runmanager.tracking.epoch_recorder import RunPlace
from runmanager.tracking.introspect.isolation import quiet_thread
from runmanager.tracking.introspect.step_cost import count_step_cost
from runmanager.tracking.lifecycle.outcome import divergence_of
from runmanager.tracking.options import STREAMING_DEVICES, RunOptions, TurnSource
from runmanager.tracking.run import ActiveRun
from runmanager.tracking.sinks import Sink
from runmanager.tracking.tensorboard.sink import default_sinks
from runmanager.training.criteria import EvaluationMetrics, build_loss, build_metrics
from runmanager.training.datasets.registry import Data, load_dataset
from runmanager.training.loading.loaders import EpochLoader, Loaders, build_loaders
from runmanager.training.loop import evaluate_epoch, tracker, train_epoch
from runmanager.training.models.builtin_models import build_model
from runmanager.training.options.groups import DataLoaderOptions, PairedOptions
from runmanager.training.options.job import AUTO, Precision, TrainingOptions
from runmanager.training.step.compiled import CompiledNetwork
from runmanager.training.step.cuda_graphs import graph_device
from runmanager.training.step.micro_batches import keep_freed_memory
from runmanager.training.step.optimizers import build_optimizer, build_scheduler
from runmanager.training.step.stepper import Stepper, build_stepper

_NUM_WARMUPS = 3  # as in PyTorch's notes on CUDA graphs


def with_prefetch(options: Any, loaders: Loaders, *, device: torch.device) -> Loaders:
    """Add prefetching to the loaders if the options ask for it and the device can copy while it computes."""
    if (
        not isinstance(options, DataLoaderOptions)
        or not options.prefetch_to_device
        or device.type not in STREAMING_DEVICES
    ):
        return loaders
    lane = SideStream(device)
    return Loaders(PrefetchingLoader(loaders.train, lane), PrefetchingLoader(loaders.validation, lane))


class PrefetchingLoader:
    """The batches of `loader`, an `EpochLoader` with pinned memory, each copied on `lane` during the previous step."""

    def __init__(self, loader: EpochLoader, lane: BatchCopier) -> None:
        self._loader = loader
        self._lane = lane
        self.num_samples = loader.num_samples
        self.batch_size = loader.batch_size

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        return prefetch(self._loader, self._lane)

    def set_epoch(self, epoch: int) -> None:
        """Select the order of epoch number `epoch`."""
        self._loader.set_epoch(epoch)

    def first_samples(self, count: int) -> tuple[Tensor, Tensor]:
        """The first `count` samples of the dataset as a batch on the host, or all if it has fewer."""
        return self._loader.first_samples(count)

    def samples(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The dataset's samples at `indices` as a batch on the host."""
        return self._loader.samples(indices)

    @property
    def dataset(self) -> Dataset[Any]:
        """The dataset of the samples."""
        return self._loader.dataset


def job_state(
    network: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    scheduler: Any,
    *,
    every: int,
    num_epochs: int,
    keep_best: str | None = None,
    data: Data | None = None,
    stepper: Stepper | None = None,
) -> TrainingState:
    """Return the training state of a job.

    The sample shape and the number of classes of `data` are stored too, so that the network can be built again without
    the data. Raises `UsageError` if it is not known which values of the metric `keep_best` are better.
    """
    parts: dict[str, Any] = {"model": network, "optimizer": optimizer, "scheduler": scheduler}
    if stepper is not None:
        parts["step"] = stepper
    return TrainingState(
        parts,
        CheckpointRules(every, num_epochs, keep_best),
        facts=None if data is None else {"in_shape": list(data.in_shape), "num_classes": data.num_classes},
        added_later=("step",),  # older versions did not store it
    )


def train_run(
    folder: RunFolder,
    options: TrainingOptions,
    *,
    device: torch.device,
    sinks: Sequence[Sink] | None = None,
    turns: TurnSource | None = None,
) -> None:
    """Train the cell whose folder this process has claimed. Errors are recorded as its end, and raised.

    `turns` schedules the run if it is measured interleaved with others.
    """
    precision = Precision(options.precision)
    run_options = RunOptions(
        options.log_every,
        options.measure.warmup_epochs,
        options.early_stop,
        turns,
        precision=precision if precision.is_cast else None,
        is_built_in=True,
    )
    sinks = default_sinks(options.tensorboard) if sinks is None else sinks
    with made_current(device), ActiveRun(RunPlace(folder, device), sinks, run_options) as run:
        _train(run, options)


class NewRun(Protocol):
    """What the components of a job need of the run that they are built for."""

    @property
    def device(self) -> torch.device: ...

    def note(self, line: str) -> None: ...

    def note_deviation(self, line: str) -> None: ...

    def add_measurements(self, **measurements: Any) -> None: ...

    def reset_peak_memory(self) -> None: ...

    def begin(self, network: Any, loader: Any, *, optimizer: Any, checkpointer: Any) -> None: ...


@dataclass(frozen=True)
class Components:
    """What the epochs of a run need."""

    loaders: Loaders
    optimizer: torch.optim.Optimizer
    scheduler: Any
    stepper: Stepper
    metrics: EvaluationMetrics


def _train(run: ActiveRun, options: TrainingOptions) -> None:
    seed_everything(options.seed)
    keep_freed_memory()
    components = build_components(run, options)
    _count_work(run, components)
    _run_epochs(run, options, components)
    _measure_inference(run, options, components)
    if components.stepper.num_skipped:
        steps = pluralize(run.num_steps, "step")
        run.note(f"skipped {components.stepper.num_skipped} of {steps}, whose gradients overflowed fp16")
    if isinstance(options.measure, PairedOptions) and run.history and divergence_of(run.history[-1]) is None:
        # With workers a turn is a whole epoch: in the middle of one they would load ahead during others' turns.
        num_steps = len(components.loaders.train) if options.num_workers else options.measure.block_steps
        train_in_turns(
            components,
            run.unrecorded_epoch(),
            run.measured_batches,
            first_epoch=options.epochs + 1,
            num_steps=num_steps,
            leads_in=not options.num_workers,
        )


def _count_work(run: ActiveRun, components: Components) -> None:
    """Record the work of a step on a full batch, or a note on why it is not known."""
    loader = components.loaders.train
    size = min(loader.batch_size, loader.num_samples)
    try:
        with quiet_thread(), preserve_random_states():
            images, _ = loader.first_samples(1)
        full = torch.empty((size, *images.shape[1:]), dtype=images.dtype, device="meta")
        work = count_step_cost(components.stepper.network, full, optimizer=components.optimizer)
    except Exception as error:  # a dataset or a model may fail here in any way; the run must not
        run.note(f"{UNKNOWN_WORK}: it cannot be followed without data ({error_line(error)})")
        return
    counts = {f"{kind}_per_step": count for kind, count in asdict(work).items()}
    run.add_measurements(**counts, step_units={"samples": float(size)})


def train_in_turns(
    components: Components, epoch: Epoch, divide: Callable[..., Iterator[Any]], *, first_epoch: int, **steps: Any
) -> None:
    """Train in measured turns until no more are granted, on the batches from epoch number `first_epoch` on.

    Only the turns are recorded. The learning rate is constant. `divide` and `steps`: see `RunTurns.measured_batches`.
    """
    loader, stepper = components.loaders.train, components.stepper
    batches = divide(_endless(loader, first_epoch), most_steps=len(loader), **steps)
    train_epoch(stepper, epoch.batches(batches), track=tracker(epoch.track, stepper.loss))


def _endless(loader: EpochLoader, epoch: int) -> Iterator[Any]:
    while True:
        loader.set_epoch(epoch)
        yield from loader
        epoch += 1


def build_components(run: NewRun, options: TrainingOptions) -> Components:
    """Build all components in a fixed order, as they draw random numbers, and begin the run."""
    loss = build_loss(options.loss)
    data_root = Path(options.data_root)
    data = load_dataset(options.dataset, data_root=data_root, seed=options.seed, ignored=loss.ignored)
    data = replace(data, num_classes=loss.to(run.device).num_outputs(data))
    loaders = _loaders(run, options, data)
    network = build_model(options.model, in_shape=data.in_shape, num_classes=data.num_classes).to(run.device)
    is_scaled = options.precision == Precision.FP16
    optimizer = build_optimizer(options.optimizer, network.parameters(), lr=options.lr, is_scaled=is_scaled)
    num_steps = len(loaders.train)
    scheduler = build_scheduler(options.scheduler, optimizer, num_epochs=options.epochs, steps_per_epoch=num_steps)
    compiled = CompiledNetwork(network, notify=run.note) if options.compile else None
    stepper = build_stepper(
        options,
        network,
        optimizer,
        device=run.device,
        in_shape=data.in_shape,
        notify=run.note_deviation,
        loss=loss,
        apply=compiled,
    )
    state = job_state(
        network,
        optimizer,
        scheduler,
        every=options.checkpoint.every,
        num_epochs=options.epochs,
        keep_best=options.checkpoint.keep_best,
        data=data,
        stepper=stepper,
    )
    run.begin(network, loaders.train, optimizer=optimizer, checkpointer=state)
    if chosen := _chosen(options, stepper):  # after `begin`, because a resumed run keeps its own choice
        run.add_measurements(chosen=chosen)
    _compile_and_capture(run, options, stepper, compiled, loaders.train)
    with preserve_random_states():  # a metric may draw numbers, and the run is the same without it
        metrics = build_metrics(options.metrics, num_outputs=data.num_classes, device=run.device)
    return Components(loaders, optimizer, scheduler, stepper, EvaluationMetrics(metrics, loss, options.metrics))


def _chosen(options: TrainingOptions, stepper: Stepper) -> dict[str, bool | int | None]:
    """What the step's settings of `auto` became."""
    return {name: value for name, value in stepper.choices.items() if getattr(options, name) == AUTO}


def _run_epochs(run: ActiveRun, options: TrainingOptions, components: Components) -> None:
    loaders, scheduler, stepper = components.loaders, components.scheduler, components.stepper
    if options.evaluate_first:
        for epoch in run.evaluation_before_training():
            _evaluate(epoch, components)
    after_step = scheduler.step if scheduler.step_interval == "step" else None
    for epoch in run.epochs(options.epochs):
        loaders.train.set_epoch(epoch.number)
        track = tracker(epoch.track, stepper.loss)
        train_epoch(stepper, epoch.batches(loaders.train), track=track, after_step=after_step)
        with epoch.evaluating():  # includes the time before and after its batches
            _evaluate(epoch, components)
        if scheduler.step_interval == "epoch":
            scheduler.step()
    for epoch in run.evaluation_again():
        track = tracker(epoch.track_eval, stepper.loss)
        evaluate_epoch(stepper, epoch.eval_batches(loaders.validation), track=track)


def _measure_inference(run: ActiveRun, options: TrainingOptions, components: Components) -> None:
    """Time calls of the trained network with the batch sizes that an earlier attempt has not."""
    sizes = run.record.measurements.sizes_not_timed(options.infer.batch_sizes)
    if sizes:
        images, _ = components.loaders.validation.first_samples(max(sizes))
        network = components.stepper.predictor(is_compiled=options.compile)
        run.measure_inference(network, images, sizes, seconds=options.infer.seconds)


def _evaluate(epoch: Epoch, components: Components) -> None:
    """Evaluate an epoch, and log the metrics, which it computes when its clock has stopped."""
    track, metrics = tracker(epoch.track_eval, components.stepper.loss), components.metrics

    def track_all(loss: Tensor, preds: Tensor, labels: Tensor) -> None:
        track(loss, preds, labels)
        metrics.update(preds, labels)

    evaluate_epoch(components.stepper, epoch.eval_batches(components.loaders.validation), track=track_all)
    epoch.log(metrics.results())


def _compile_and_capture(
    run: NewRun, options: TrainingOptions, stepper: Stepper, compiled: CompiledNetwork | None, loader: EpochLoader
) -> None:
    """Compile the steps on full batches, and let them be captured, as the settings ask."""
    if compiled is not None:
        seconds = compiled.compile_for(stepper.compute_gradients, loader, device=run.device)
        run.add_measurements(compile_seconds=seconds)
        run.reset_peak_memory()  # the uncompiled trial needs more
    if (graphs := graph_device(options, run.device)) is not None:
        num_full = max(1, loader.num_samples // loader.batch_size)
        stepper.use_graphs(
            graphs, num_warmups=min(_NUM_WARMUPS, num_full), required=options.graphs is True, notify=run.note
        )


def _loaders(run: NewRun, options: TrainingOptions, data: Data) -> Loaders:
    loaders = build_loaders(
        options.loader,
        data,
        batch_size=options.batch_size,
        eval_batch_size=options.eval_batch_size or options.batch_size,
        num_workers=options.num_workers,
        device=run.device,
        seed=options.seed,
        notify=run.note,
    )
    return with_prefetch(options.loader, loaders, device=run.device)
