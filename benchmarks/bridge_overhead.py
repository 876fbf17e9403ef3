"""What a bridge adds to an epoch: trainings of Lightning and Transformers with and without it, in turns.

The first epoch is warm-up: in it the graph is drawn, and the work of a step counted. It is not timed.

python -m benchmarks.bridge_overhead --write
"""

import itertools
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
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

__all__ = ["in_parts", "measure"]

_STOPPING_RULE = StoppingRule(min_rounds=7, max_rounds=30, max_seconds=90.0, half_width=0.005)
_BUDGET = Budget(1.02)
_NUM_TIMED_EPOCHS, _NUM_STEPS, _BATCH_SIZE = 1, 125, 200

Pause = Callable[[bool], None]
"""Ends a part, which is timed or not, and returns when the next one may begin."""


def measure(settings: Settings) -> list[Row]:
    """Return a row for each framework."""
    torch.set_num_threads(1)
    return [_row(settings, name, train) for name, train in (("Lightning", _lightning), ("Transformers", _transformers))]


def _row(settings: Settings, name: str, train: Callable[[Pause, Path | None], None]) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        roots = (Path(folder) / str(number) for number in itertools.count())
        contenders = {
            "without": lambda: in_parts(lambda pause: train(pause, None)),
            "with": lambda: in_parts(lambda pause: train(pause, next(roots))),
        }
        seconds = run_parts_interleaved(contenders, stopping_rule=settings.stopping_rule, seed=settings.seed)
    per_epoch = {side: [each / _NUM_TIMED_EPOCHS for each in spent] for side, spent in seconds.items()}
    what = f"wall time of an epoch of {name}, {_NUM_STEPS} steps: with the bridge / without"
    return ratio_row(what, ours=per_epoch["with"], other=per_epoch["without"], budget=_BUDGET)[0]


def in_parts(work: Callable[[Pause], None]) -> Iterator[bool]:
    """Do `work`, in a thread that runs only while the next part is requested; yield whether each part is timed."""
    turn, ended = threading.Semaphore(0), threading.Semaphore(0)
    parts: list[bool] = []
    errors: list[BaseException] = []

    def pause(is_timed: bool) -> None:
        parts.append(is_timed)
        ended.release()
        turn.acquire()

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
        yield parts.pop()
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
    """Ends a part with each step; those of the first epoch are not timed."""

    def __init__(self, pause: Pause) -> None:
        self._pause = pause
        self._num_begun = 0

    def begin_epoch(self) -> None:
        if self._num_begun < 2:
            self._pause(False)
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
    trainer.fit(_Module(), DataLoader(_data(), _BATCH_SIZE))
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
        trainer.train()
    if bridge is not None and bridge.run is not None:
        bridge.run.end()


if __name__ == "__main__":
    run_benchmark("bridge_overhead", measure, summary=__doc__, stopping_rule=_STOPPING_RULE)
