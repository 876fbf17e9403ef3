"""Power cuts: the disk as one leaves it, at random moments of a sweep, of its resumption and of a custom loop."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from commands import killed_at_exit, wait_until
from programs import Sweep

from faults.disk_model import Disk, Entry, entries_below
from faults.small import SmallLoop, SmallSweep, read_journal, seam_variables, untrue_states
from faults.trial import Epochs, Tally, finish, new_folder, run_well, stored_epochs, without_judgement
from runmanager.records.run.run_record import EpochRecord

__all__ = ["Recorded", "cut_power", "record_command"]

_MAY_BE_LOST_SECONDS = 1.0
_PACE = "0.02,0.02,1.4,0.3,0.02,1.2"  # seconds of each epoch: a line may wait long for the next one


@dataclass(frozen=True)
class Recorded:
    """A command whose operations on the disk were noted, and what was stored when it began."""

    sweep: Sweep
    reference: Sweep
    before: Sequence[Entry]
    epochs_before: Epochs
    operations: Sequence[tuple[Any, ...]]

    def finished(self, end: int) -> Iterator[tuple[float, str, EpochRecord]]:
        """Yield the epochs of which the last byte was written before operation `end`: time, run and record."""
        paths = {inode: Path(name) for name, inode, _ in self.before}
        torn: dict[int, bytes] = {}
        for at, kind, *words in self.operations[:end]:
            if kind == "create":
                paths[words[1]] = Path(words[0])
            elif kind == "rename":
                paths.update({inode: Path(words[1]) for inode, path in paths.items() if str(path) == words[0]})
            elif kind == "write" and paths.get(words[0], Path()).name == "epochs.jsonl":
                *lines, torn[words[0]] = (torn.get(words[0], b"") + words[2]).split(b"\n")
                run = paths[words[0]].parent.name
                yield from ((at, run, msgspec.json.decode(line, type=EpochRecord)) for line in lines)


def cut_power(
    folder: Path,
    tries: int,
    seed: int,
    *,
    kinds: Sequence[str] = ("sweep", "resumed", "loop"),
    pace: str = _PACE,
) -> Tally:
    """Cut the power `tries` times, in turn in each kind of command; `resumed` goes on with a sweep that was killed."""
    tally, chance = Tally(), random.Random(seed)
    recorded = [record_command(new_folder(folder, kind), kind, pace=pace) for kind in kinds]
    for number in range(tries):
        _try(tally, recorded[number % len(recorded)], number, chance)
    tally.told["`table` shows `crashed (vanished)`; the command says what it resumes"] = tally.tried
    return tally


def record_command(folder: Path, kind: str, *, pace: str = _PACE) -> Recorded:
    """Run a command of this kind to its end, and note what it does to the disk."""
    paced = {"PACE": pace}
    program, variant = (SmallLoop, "generator") if kind == "loop" else (SmallSweep, "two")
    reference = program(new_folder(folder, "whole"), variant, "undisturbed")
    run_well(reference)
    sweep = program(folder, variant, "cut")
    if kind == "resumed":
        _kill(replace(sweep, variables=paced))
    before = [each for each in entries_below(folder) if each[0].partition("/")[0] == "outputs"]
    epochs = stored_epochs(sweep)
    journal = folder / "journal"
    run_well(replace(sweep, variables=seam_variables(folder, journal) | paced))
    return Recorded(sweep, reference, before, epochs, read_journal(str(journal)))


def _kill(sweep: Any) -> None:
    process = sweep.start()
    with killed_at_exit(process):
        wait_until(lambda: any(len(sweep.finished_work(record)) >= 2 for record in sweep.running()), "two epochs")
        process.kill()
    wait_until(lambda: not sweep.running(), "the end of the runs")


def _try(tally: Tally, recorded: Recorded, number: int, chance: random.Random) -> None:
    operations, sweep = recorded.operations, recorded.sweep
    end = chance.randint(1, len(operations))
    # The power may fail at any time until the next operation.
    cut_at = operations[end][0] if end < len(operations) else operations[-1][0]
    disk = Disk(sweep.folder, recorded.before)
    for _, kind, *words in operations[:end]:
        disk.do(kind, *words)
    disk.write_after_cut(sweep.folder, chance, names=["outputs"])
    sweep.log_path.unlink(missing_ok=True)
    tally.tried += 1
    kept = {run: dict(epochs) for run, epochs in recorded.epochs_before.items()}
    for at, run, epoch in recorded.finished(end):
        if at <= cut_at - _MAY_BE_LOST_SECONDS:
            kept.setdefault(run, {})[epoch.epoch] = without_judgement(epoch)
    tally.untrue += [f"try {number} at operation {end}: {line}" for line in untrue_states(sweep)]
    finish(tally, sweep, recorded.reference, kept, what=f"try {number} at operation {end}")
