"""What a bridge adds to an epoch: trainings of Lightning and Transformers with and without it, step by step in turns.

Each round is an epoch of both sides, up to the record of it, and trainings continue over several rounds, as most of an
epoch's cost is in its steps. The first epoch of a training is warm-up: in it the graph is drawn, and the work of a step
counted. It is not timed. Freed memory is kept on both sides, as in a run: else the layout of memory would decide how
much of it each step maps again, and the sides would differ by more than a bridge costs.

python -m benchmarks.bridge_overhead --write
"""

import itertools
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import torch
import torch.nn.functional as F
import transformers
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule, run_parts_interleaved
from benchmarks.rows import Budget, Row, ratio_row
from runmanager.integrations.lightning import RunManagerLogger
from runmanager.integrations.transformers import RunManagerCallback
from runmanager.training.models.builtin_models import build_model
from runmanager.training.options.groups import CnnOptions
from runmanager.training.step.micro_batches import keep_freed_memory

__all__ = ["in_parts", "measure"]

_STOPPING_RULE = StoppingRule(min_rounds=20, max_rounds=60, max_seconds=140.0, half_width=0.003)
_BUDGET = Budget(1.02)
_NUM_TIMED_EPOCHS, _NUM_STEPS, _BATCH_SIZE = 10, 125, 200
_NUM_PARTS = _NUM_STEPS + 1  # of an epoch: its steps, and what follows the last of them

Pause = Callable[[bool], None]
"""Ends a part, which is timed or not, and returns when the next one may begin."""


def measure(settings: Settings) -> list[Row]:
    """Return a row for each framework."""
    torch.set_num_threads(1)
    keep_freed_memory()
    return [_row(settings, name, train) for name, train in (("Lightning", _lightning), ("Transformers", _transformers))]


def _row(settings: Settings, name: str, train: Callable[[Pause, Path | None], None]) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        roots = (Path(folder) / str(number) for number in itertools.count())
        sides = {
            "without": _Trainings(lambda: in_parts(lambda pause: train(pause, None))),
            "with": _Trainings(lambda: in_parts(lambda pause: train(pause, next(roots)))),
        }
        contenders = {name: side.next_epoch for name, side in sides.items()}
        try:
            seconds = run_parts_interleaved(contenders, stopping_rule=settings.stopping_rule, seed=settings.seed)
        finally:
            for side in sides.values():
                side.leave()
    what = f"wall time of an epoch of {name}, {_NUM_STEPS} steps: with the bridge / without"
    return ratio_row(what, ours=seconds["with"], other=seconds["without"], budget=_BUDGET)[0]


class _Trainings:
    """Trainings of one side, one after the other, of which each round gets an epoch."""

    def __init__(self, begin: Callable[[], Generator[bool, None, None]]) -> None:
        self._begin = begin
        self._parts: Generator[bool, None, None] | None = None
        self._num_epochs = 0

    def next_epoch(self) -> Iterator[bool]:
        """Yield for each part of an epoch whether it is timed; the last epoch of a training has its end too."""
        if self._parts is None:
            self._parts, self._num_epochs = self._begin(), 0
        self._num_epochs += 1
        num_timed = 0
        for is_timed in self._parts:
            num_timed += is_timed
            yield is_timed
            if num_timed == _NUM_PARTS and self._num_epochs < _NUM_TIMED_EPOCHS:
                return
        self._parts = None

    def leave(self) -> None:
        """Leave the training that has not ended."""
        if self._parts is not None:
            self._parts.close()


class _Left(Exception):
    """Raised in a training that is left before its end."""


def in_parts(work: Callable[[Pause], None]) -> Generator[bool, None, None]:
    """Do `work`, in a thread that runs only while the next part is requested; yield whether each part is timed.

    If the generator is closed, the work is left by an exception.
    """
    turn, ended = threading.Semaphore(0), threading.Semaphore(0)
    parts: list[bool] = []
    errors: list[BaseException] = []
    is_left = threading.Event()

    def pause(is_timed: bool) -> None:
        parts.append(is_timed)
        ended.release()
        turn.acquire()
        if is_left.is_set():
            raise _Left

    def run() -> None:
        turn.acquire()
        try:
            work(pause)
        except BaseException as error:
            errors.append(error)
        finally:
            ended.release()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while True:
        turn.release()
        ended.acquire()
        if not parts:
            break
        try:
            yield parts.pop()
        except GeneratorExit:
            is_left.set()
            turn.release()
            thread.join()
            raise
    thread.join()
    if errors:
        raise errors[0]


def _data() -> TensorDataset:
    count = _NUM_STEPS * _BATCH_SIZE
    return TensorDataset(torch.rand(count, 1, 28, 28), torch.randint(10, (count,)))


def _network() -> torch.nn.Module:
    torch.manual_seed(0)
    return build_model(CnnOptions(), in_shape=(1, 28, 28), num_classes=10)


class _Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = _network()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.network(images)
        return scores

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class _Turns:
    """Ends a part with each step and each epoch; those of the first epoch are not timed."""

    def __init__(self, pause: Pause) -> None:
        self._pause = pause
        self._num_begun = 0

    def begin_epoch(self) -> None:
        """End the part before: the start of the training, or the end of an epoch."""
        self._pause(self._num_begun > 1)
        self._num_begun += 1

    def end_part(self) -> None:
        self._pause(self._num_begun > 1)


class _LightningTurns(lightning.Callback):
    def __init__(self, turns: _Turns) -> None:
        self._turns = turns

    def on_train_epoch_start(self, *_: Any) -> None:
        self._turns.begin_epoch()

    def on_train_batch_end(self, *_: Any) -> None:
        self._turns.end_part()

    def on_train_end(self, *_: Any) -> None:
        self._turns.end_part()


def _lightning(pause: Pause, root: Path | None) -> None:
    logger = RunManagerLogger(root) if root else None
    trainer = lightning.Trainer(
        accelerator="cpu",
        callbacks=[_LightningTurns(_Turns(pause))],
        logger=logger or False,
        max_epochs=1 + _NUM_TIMED_EPOCHS,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    try:
        trainer.fit(_Module(), DataLoader(_data(), _BATCH_SIZE))
    finally:
        if logger is not None and logger.run is not None:
            logger.run.end()


class _Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = _network()

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = self.network(images)
        return {"loss": F.cross_entropy(scores, labels), "logits": scores}


class _TransformersTurns(transformers.TrainerCallback):
    def __init__(self, turns: _Turns) -> None:
        self._turns = turns

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        self._turns.begin_epoch()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._turns.end_part()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self._turns.end_part()


def _collate(samples: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, torch.Tensor]:
    images, labels = (torch.stack(part) for part in zip(*samples, strict=True))
    return {"images": images, "labels": labels}


def _transformers(pause: Pause, root: Path | None) -> None:
    bridge = RunManagerCallback(root) if root else None
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            num_train_epochs=1 + _NUM_TIMED_EPOCHS,
            per_device_train_batch_size=_BATCH_SIZE,
            dataloader_pin_memory=False,
            disable_tqdm=True,
            logging_steps=_NUM_STEPS,
            remove_unused_columns=False,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
        )
        callbacks = [*([bridge] if bridge else []), _TransformersTurns(_Turns(pause))]
        trainer = transformers.Trainer(_Model(), arguments, _collate, _data(), callbacks=callbacks)
        trainer.remove_callback(transformers.PrinterCallback)
        try:
            trainer.train()
        finally:
            if bridge is not None and bridge.run is not None:
                bridge.run.end()


if __name__ == "__main__":
    run_benchmark("bridge_overhead", measure, summary=__doc__, stopping_rule=_STOPPING_RULE)
