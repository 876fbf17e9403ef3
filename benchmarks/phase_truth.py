"""Accuracy of phase times: delays of known length in each part of an epoch against the measured phases.

python -m benchmarks.phase_truth --write
python -m benchmarks.phase_truth --loop lightning --write
"""

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.page import MEASUREMENT, describe_machine, source_line, write_section
from runmanager import RunManager
from runmanager.records.run.run_record import PHASES, EpochRecord, RunRecord
from runmanager.tracking.sinks import EpochDetails, RunStart

__all__ = ["DELAYS", "Deviation", "InjectedDelays", "deviations", "section", "train", "train_with"]

MAX_DEVIATIONS = {**dict.fromkeys(PHASES, 0.02), "wall": 0.01}
MAX_FRAMEWORK_DEVIATION = 0.05
FRAMEWORKS = ("lightning", "transformers")
DELAYS = {"data": 0.05, "transfer": 0.03, "compute": 0.1, "eval": 0.06, "tracking": 0.1}
"""Seconds per batch; for `tracking`, per epoch."""

_NUM_BATCHES = 10
_SHAPE = (4, 8)


@dataclass
class InjectedDelays:
    """Injects delays into the parts of an epoch and records their true lengths with a clock independent of the timer.

    On a busy machine a delay takes longer than requested, so the true length is measured.
    """

    pause: Callable[[float], None] = time.sleep
    now: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_MONOTONIC_RAW)
    spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def take(self) -> dict[str, float]:
        """Return the delays since the last call."""
        spent, self.spent = self.spent, defaultdict(float)
        return spent

    def wait(self, phase: str) -> None:
        """Delay once in `phase`."""
        begin = self.now()
        self.pause(DELAYS[phase])
        self.spent[phase] += self.now() - begin

    def loader(self, *, slow: bool) -> Iterator[Any]:
        """Yield batches, with `slow` after a delay and with inputs that are slow to transfer."""
        for _ in range(_NUM_BATCHES):
            if slow:
                self.wait("data")
            inputs = torch.ones(_SHAPE).as_subclass(_Slow) if slow else torch.ones(_SHAPE)
            if isinstance(inputs, _Slow):
                inputs.delays = self
            yield inputs, torch.zeros(_SHAPE[0], dtype=torch.int64)


class _Slow(torch.Tensor):
    """Tensor with a slow transfer to the device."""

    delays: InjectedDelays

    def to(self, *arguments: Any, **keywords: Any) -> torch.Tensor:
        self.delays.wait("transfer")
        return self.as_subclass(torch.Tensor).to(*arguments, **keywords)


@dataclass
class _SlowSink:
    """Sink that delays each epoch and then stores the delays injected in it."""

    delays: InjectedDelays
    accounts: list[dict[str, float]] = field(default_factory=list)

    def begin(self, start: RunStart) -> Sequence[str]:
        return ()

    def epoch(self, record: EpochRecord, details: EpochDetails) -> Sequence[str]:
        self.delays.wait("tracking")
        self.accounts.append(self.delays.take())
        return ()

    def end(self, record: RunRecord) -> None:
        pass


Account = tuple[dict[str, float], EpochRecord]
"""Injected delays of an epoch by phase, and its record."""


def train(folder: Path, delays: InjectedDelays, *, num_epochs: int, device: str = "cpu") -> list[Account]:
    """Train a tiny model with delays in all phases and return the measured epochs."""
    torch.set_num_threads(1)  # waking a second thread after each delay would take milliseconds
    network = torch.nn.Linear(_SHAPE[1], 3)
    sink = _SlowSink(delays)
    with RunManager(folder, sinks=[sink]).run({"device": device}, network) as run:
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        for epoch in run.epochs(num_epochs):
            for inputs, labels in epoch.batches(delays.loader(slow=True)):
                preds = network(inputs)
                loss = F.cross_entropy(preds, labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                delays.wait("compute")
                epoch.track(loss, preds, labels)
            for inputs, labels in epoch.eval_batches(delays.loader(slow=False)):
                delays.wait("eval")
                with torch.no_grad():
                    preds = network(inputs)
                epoch.track_eval(F.cross_entropy(preds, labels), preds, labels)
    accounts = zip(sink.accounts, run.history, strict=True)
    return [(waited, record) for waited, record in accounts if not record.warmup]


@dataclass(frozen=True)
class Deviation:
    """Injected and measured seconds per epoch of a phase, and their relative difference.

    For `wall`, `injected` is the sum of the measured phases.
    """

    phase: str
    injected: float
    measured: float
    share: float
    budget: float

    @property
    def is_met(self) -> bool:
        return abs(self.share) <= self.budget


def deviations(accounts: Sequence[Account], *, budgets: Mapping[str, float] = MAX_DEVIATIONS) -> list[Deviation]:
    """Return the median deviation of each phase with delays, and the worst one of the wall time from the phases' sum.

    `budgets` has the largest deviation of each phase, and of `wall`.
    """
    injected = [phase for phase in PHASES if phase in accounts[0][0]]
    found = [_deviation(phase, accounts, budgets[phase]) for phase in injected]
    sums = [(sum(_seconds(record, phase) for phase in PHASES), _seconds(record, "wall")) for _, record in accounts]
    total, wall = max(sums, key=lambda each: abs(each[0] / each[1] - 1))
    return [*found, Deviation("wall", total, wall, wall / total - 1, budgets["wall"])]


def _deviation(phase: str, accounts: Sequence[Account], budget: float) -> Deviation:
    injected = median(waited[phase] for waited, _ in accounts)
    measured = median(_seconds(record, phase) for _, record in accounts)
    share = median(_seconds(record, phase) / waited[phase] - 1 for waited, record in accounts)
    return Deviation(phase, injected, measured, share, budget)


def _seconds(record: EpochRecord, part: str) -> float:
    """Return the seconds of a phase; 0 for one that the loop cannot tell from another."""
    return float(getattr(record, f"{part}_seconds") or 0.0)


def section(found: Sequence[Deviation], *, num_epochs: int, machine: str, command: str) -> str:
    """Format the table of docs/measurement_evidence.md."""
    lines = [
        "| phase | injected delays | measured | deviation |",
        "| --- | --- | --- | --- |",
    ]
    for each in found:
        name = "all phases, against `wall_seconds`" if each.phase == "wall" else f"`{each.phase}_seconds`"
        deviation = f"{each.share:+.2%}" if each.is_met else f"**{each.share:+.2%}**"
        cells = [name, f"{each.injected:.4f} s", f"{each.measured:.4f} s", deviation]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", source_line(command, f"{num_epochs} epochs", machine=machine), ""])


def main() -> int:
    """Run the command line. Return 1 if a phase deviates by more than its budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12, help="number of epochs; the first one is warm-up")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--loop", choices=("own", *FRAMEWORKS), default="own", help="whose training loop")
    parser.add_argument("--write", action="store_true", help="write the table to docs/measurement_evidence.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        accounts, budgets = _accounts(options, Path(folder))
    found = deviations(accounts, budgets=budgets)
    command = f"python -m benchmarks.phase_truth --epochs {options.epochs} --device {options.device}"
    command += "" if options.loop == "own" else f" --loop {options.loop}"
    text = section(found, num_epochs=len(accounts), machine=describe_machine(options.device), command=command)
    print(text)
    if options.write:
        write_section(MEASUREMENT, "phase_truth" if options.loop == "own" else f"phase_truth_{options.loop}", text)
    return 0 if all(each.is_met for each in found) else 1


def _accounts(options: argparse.Namespace, folder: Path) -> tuple[list[Account], Mapping[str, float]]:
    if options.loop == "own":
        return train(folder, InjectedDelays(), num_epochs=options.epochs, device=options.device), MAX_DEVIATIONS
    accounts = train_with(options.loop, folder, InjectedDelays(), num_epochs=options.epochs, device=options.device)
    return accounts, dict.fromkeys(MAX_DEVIATIONS, MAX_FRAMEWORK_DEVIATION)


def train_with(
    framework: str, folder: Path, delays: InjectedDelays, *, num_epochs: int, device: str = "cpu"
) -> list[Account]:
    """Train with a framework's own loop, as `train` does; `folder` must not exist."""
    torch.set_num_threads(1)
    loop = import_module(f"benchmarks.{framework}_delays")
    spent, history = loop.train(folder, delays, num_epochs=num_epochs, device=device)
    return [(waited, record) for waited, record in zip(spent, history, strict=True) if not record.warmup]


if __name__ == "__main__":
    sys.exit(main())
