"""Delays of known length in every part of an epoch: does each come back in its own phase?

python -m benchmarks.phase_truth --write
"""

import argparse
import datetime
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.page import MEASUREMENT, described_machine, write_section
from runmanager import RunManager
from runmanager.records.run.run_record import PHASES, EpochRecord, RunRecord
from runmanager.tracking.sinks import EpochDetails, RunStart

__all__ = ["DELAYS", "Delayed", "Deviation", "deviations", "section", "train"]

MOST_OFF = {**dict.fromkeys(PHASES, 0.02), "wall": 0.01}
DELAYS = {"data": 0.05, "transfer": 0.03, "compute": 0.1, "eval": 0.06, "tracking": 0.1}
"""Seconds a batch; of `tracking` seconds an epoch."""

_NUM_BATCHES = 10
_SHAPE = (4, 8)


@dataclass
class Delayed:
    """Waits in a part of an epoch, and keeps how long that really took by a clock that the timer does not use.

    No wait ends on time on a busy machine, so the length asked for is not the length there was.
    """

    pause: Callable[[float], None] = time.sleep
    now: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_MONOTONIC_RAW)
    spent: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def wait(self, phase: str) -> None:
        """Wait once in `phase`."""
        begin = self.now()
        self.pause(DELAYS[phase])
        self.spent[phase] += self.now() - begin

    def loader(self, *, slow: bool) -> Iterator[Any]:
        """Batches that are waited for where `slow`, and whose inputs take long to move."""
        for _ in range(_NUM_BATCHES):
            if slow:
                self.wait("data")
            inputs = torch.ones(_SHAPE).as_subclass(_Slow) if slow else torch.ones(_SHAPE)
            if isinstance(inputs, _Slow):
                inputs.delayed = self
            yield inputs, torch.zeros(_SHAPE[0], dtype=torch.int64)


class _Slow(torch.Tensor):
    """A tensor that takes long to move to a device."""

    delayed: Delayed

    def to(self, *arguments: Any, **keywords: Any) -> torch.Tensor:
        self.delayed.wait("transfer")
        return self.as_subclass(torch.Tensor).to(*arguments, **keywords)


@dataclass
class _SlowSink:
    """A sink that takes long over each epoch, and then closes the account of what was waited in it."""

    delayed: Delayed
    accounts: list[dict[str, float]] = field(default_factory=list)

    def begin(self, start: RunStart) -> Sequence[str]:
        return ()

    def epoch(self, record: EpochRecord, details: EpochDetails) -> Sequence[str]:
        self.delayed.wait("tracking")
        self.accounts.append(self.delayed.spent)
        self.delayed.spent = defaultdict(float)
        return ()

    def end(self, record: RunRecord) -> None:
        pass


Account = tuple[dict[str, float], EpochRecord]
"""What an epoch waited in each phase, and its record."""


def train(folder: Path, delayed: Delayed, *, num_epochs: int, device: str = "cpu") -> list[Account]:
    """Train a tiny model with delays in all its parts, and return the measured epochs."""
    torch.set_num_threads(1)  # waking a second one after each delay would take the model milliseconds
    network = torch.nn.Linear(_SHAPE[1], 3)
    sink = _SlowSink(delayed)
    with RunManager(folder, sinks=[sink]).run({"device": device}, network) as run:
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        for epoch in run.epochs(num_epochs):
            for inputs, labels in epoch.batches(delayed.loader(slow=True)):
                preds = network(inputs)
                loss = F.cross_entropy(preds, labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                delayed.wait("compute")
                epoch.track(loss, preds, labels)
            for inputs, labels in epoch.eval_batches(delayed.loader(slow=False)):
                delayed.wait("eval")
                with torch.no_grad():
                    preds = network(inputs)
                epoch.track_eval(F.cross_entropy(preds, labels), preds, labels)
    accounts = zip(sink.accounts, run.history, strict=True)
    return [(waited, record) for waited, record in accounts if not record.warmup]


@dataclass(frozen=True)
class Deviation:
    """What was put into a phase and what came out, in seconds an epoch, and by how much they differ as a share.

    Of `wall` the sum of the phases is what was put in.
    """

    phase: str
    put_in: float
    came_out: float
    share: float

    @property
    def is_met(self) -> bool:
        return abs(self.share) <= MOST_OFF[self.phase]


def deviations(accounts: Sequence[Account]) -> list[Deviation]:
    """The median epoch's deviation in each phase, and the worst one's of the phases' sum from the wall time."""
    found = [_deviation(phase, accounts) for phase in PHASES]
    sums = [(sum(_seconds(record, phase) for phase in PHASES), _seconds(record, "wall")) for _, record in accounts]
    total, wall = max(sums, key=lambda each: abs(each[0] / each[1] - 1))
    return [*found, Deviation("wall", total, wall, wall / total - 1)]


def _deviation(phase: str, accounts: Sequence[Account]) -> Deviation:
    put_in = median(waited[phase] for waited, _ in accounts)
    came_out = median(_seconds(record, phase) for _, record in accounts)
    share = median(_seconds(record, phase) / waited[phase] - 1 for waited, record in accounts)
    return Deviation(phase, put_in, came_out, share)


def _seconds(record: EpochRecord, part: str) -> float:
    value = getattr(record, f"{part}_seconds")
    assert value is not None
    return float(value)


def section(found: Sequence[Deviation], *, num_epochs: int, machine: str, command: str) -> str:
    """The table of docs/measurement.md."""
    lines = ["| phase | delays put in | measured | deviation | budget | met |", "| --- | --- | --- | --- | --- | --- |"]
    for each in found:
        name = "all phases, against `wall_seconds`" if each.phase == "wall" else f"`{each.phase}_seconds`"
        cells = [name, f"{each.put_in:.4f} s", f"{each.came_out:.4f} s", f"{each.share:+.2%}"]
        cells += [f"{MOST_OFF[each.phase]:.0%}", "yes" if each.is_met else "no"]
        lines.append(f"| {' | '.join(cells)} |")
    day = datetime.date.today().isoformat()
    return "\n".join([*lines, "", f"`{command}`: {num_epochs} epochs, {day}, on {machine}.", ""])


def main() -> int:
    """Carry out the command line; status 1 where a phase is off by more than its budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12, help="the first one is warm-up")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--write", action="store_true", help="put the table into docs/measurement.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        accounts = train(Path(folder), Delayed(), num_epochs=options.epochs, device=options.device)
    found = deviations(accounts)
    command = f"python -m benchmarks.phase_truth --epochs {options.epochs} --device {options.device}"
    text = section(found, num_epochs=len(accounts), machine=described_machine(options.device), command=command)
    print(text)
    if options.write:
        write_section(MEASUREMENT, "phase_truth", text)
    return 0 if all(each.is_met for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
