"""One try of a fault: what was stored when it was over, and what the same command makes of it without the fault."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from commands import DEADLINE_SECONDS, killed_at_exit
from kills import differences
from loops import Loop
from programs import Sweep

__all__ = [
    "Epochs",
    "Tally",
    "discard",
    "finish",
    "new_folder",
    "note_telling",
    "run_command",
    "run_well",
    "stored_epochs",
    "without_judgement",
]

Epochs = dict[str, dict[int, object]]
"""The records of finished epochs by run and number."""


@dataclass
class Tally:
    """What came of the tries of one fault.

    `lost` has the finished epochs that were missing or made again in the end, `untrue` the states that were not true,
    `unrecovered` what the same command did not recover. `told` counts the lines that told the fault, `untold` has the
    tries where none did, or a traceback.
    """

    tried: int = 0
    lost: list[str] = field(default_factory=list)
    untrue: list[str] = field(default_factory=list)
    unrecovered: list[str] = field(default_factory=list)
    told: Counter[str] = field(default_factory=Counter)
    untold: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not any(self.faults())

    def add(self, other: "Tally") -> None:
        """Add what came of other tries."""
        self.tried += other.tried
        self.told += other.told
        for name in ("lost", "untrue", "unrecovered", "untold"):
            getattr(self, name).extend(getattr(other, name))

    def faults(self) -> Iterable[str]:
        """Yield a line for each thing that should not be."""
        for name in ("lost", "untrue", "unrecovered", "untold"):
            yield from (f"{name}: {line}" for line in getattr(self, name))


def run_command(sweep: Sweep, meanwhile: Callable[[Any], None] = lambda _: None) -> int:
    """Run a command to its end, doing something `meanwhile`; return its status. Its process group is killed at last."""
    process = sweep.start()
    with killed_at_exit(process):
        meanwhile(process)
        return process.wait(DEADLINE_SECONDS)


def run_well(sweep: Sweep) -> None:
    """Run a command to its end. Raises `RuntimeError` if it fails."""
    if run_command(sweep) != 0:
        raise RuntimeError(f"the command failed:\n{sweep.log()}")


def stored_epochs(sweep: Sweep) -> Epochs:
    """Return the finished epochs that are stored now."""
    return {
        record.name: {number: without_judgement(epoch) for number, epoch in sweep.finished_work(record).items()}
        for record in sweep.records()
    }


def without_judgement(epoch: Any) -> object:
    """Return an epoch's record without what later epochs may change: whether it counts as warm-up."""
    return msgspec.structs.replace(epoch, warmup=False)


def finish(tally: Tally, sweep: Sweep, reference: Sweep, kept: Epochs, *, what: str) -> None:
    """Give the command once more; compare with the epochs that were `kept`, and with the undisturbed sweep."""
    status = run_command(sweep)
    if status != 0:
        tally.unrecovered.append(f"{what}: status {status}: {' / '.join(sweep.log().splitlines()[-4:])}")
        return
    now = stored_epochs(sweep)
    for run, epochs in kept.items():
        gone = [number for number, epoch in epochs.items() if now.get(run, {}).get(number) != epoch]
        tally.lost += [f"{what}: epoch {number} of {run}" for number in gone]
    if found := differences(sweep, reference):
        tally.unrecovered.append(f"{what}: differs: {found[0]}")


def note_telling(tally: Tally, sweep: Sweep, words: str, *, what: str) -> None:
    """Note the last line of the command's output that has these words."""
    lines = sweep.log().splitlines() if sweep.log_path.exists() else []
    telling = [line.strip() for line in lines if words in line]
    is_ours = not isinstance(sweep, Loop)  # a program's own errors are shown with their traceback
    if not telling or (is_ours and any(line.startswith("Traceback") for line in lines)):
        errors = [line.strip() for line in lines if "rror" in line]
        tally.untold.append(f"{what}: {' / '.join([*errors[:3], *lines[-6:]])}")
    else:
        tally.told[telling[-1]] += 1


def discard(sweep: Sweep) -> None:
    """Remove what a try has left."""
    shutil.rmtree(sweep.paths.root, ignore_errors=True)
    sweep.log_path.unlink(missing_ok=True)


def new_folder(folder: Path, name: str) -> Path:
    """Return a new folder of this name."""
    made = folder / name
    made.mkdir(parents=True)
    return made
