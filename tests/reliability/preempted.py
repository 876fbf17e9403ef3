"""Six cells on a real Slurm, one of which is SIGKILLed and one preempted by a more urgent job."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from commands import DEADLINE_SECONDS, killed_at_exit, start, start_python, wait_until
from sweeps import DYING, TINY, states_of

from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_sweep

if TYPE_CHECKING:
    from loopback import Slurm

WAYS = ("gate", "killed", "one", "two", "three", "four")
_FIRST = WAYS[:4]  # the largest array there; the other cells wait for these
_WATCH = "import sys; from runmanager.cli.main import run_command; sys.exit(run_command(['watch', 'outputs/six']))"


@dataclass(frozen=True)
class Six:
    """How such a sweep ended: states by cell, attempts of the preempted run, exit status.

    `shown` are the lines of `watch`, `shown_live` those before the preemption; empty if the driver waited itself.
    """

    states: dict[str, tuple[str, str | None]]
    attempts: int
    status: int
    shown: list[str]
    shown_live: list[str]

    @property
    def is_as_promised(self) -> bool:
        """Whether five cells finished, the preempted one in a later attempt, and one reads `killed`."""
        others = [state for way, state in self.states.items() if way != "killed"]
        killed = self.states.get("killed")
        return (others, killed) == ([("finished", None)] * 5, ("killed", "signal")) and self.attempts > 1

    @property
    def was_watched(self) -> bool:
        """Whether `watch` showed the end of each run, and some of them before the last one began."""
        live = sum(_is_end(line) for line in self.shown_live)
        return {way for way in WAYS if any(way in line for line in filter(_is_end, self.shown))} == set(WAYS) and (
            0 < live < len(WAYS)
        )


def six_cells(folder: Path, slurm: "Slurm", *, is_detached: bool) -> Six:
    """Run the six cells from `folder`; a detached sweep is followed by `watch`, whose exit status counts."""
    shutil.copy(DYING, folder / "own.py")
    (folder / "gate").touch()
    words = [*TINY, "epochs=3", f"+model.way={','.join(WAYS)}", "num_workers=1", "name=six", "hydra/launcher=slurm"]
    words += ["hydra.launcher.poll_seconds=0.3", f"hydra.launcher.wait={not is_detached}", "--order", "grid"]
    log = folder / "six.log"
    sweep = SweepPaths(folder / "outputs" / "six")
    process = start(folder, "-m", *words, log=log, variables=slurm.variables)
    with killed_at_exit(process):
        if is_detached:
            if process.wait(DEADLINE_SECONDS) != 0:
                raise RuntimeError(f"the cells were not submitted:\n{log.read_text()}")
            log = folder / "watch.log"
            process = start_python(folder, "-c", _WATCH, log=log, variables=slurm.variables)
        with killed_at_exit(process):
            _preempt(folder, slurm, sweep)
            live = log.read_text().splitlines() if is_detached else []
            (folder / "gate").unlink()
            status = process.wait(DEADLINE_SECONDS)
    (attempts,) = (run.record.attempt for run in read_sweep(sweep).runs if "way=gate" in run.record.name)
    return Six(states_of(sweep), attempts, status, log.read_text().splitlines() if is_detached else [], live)


def _preempt(folder: Path, slurm: "Slurm", sweep: SweepPaths) -> None:
    """Submit a job that needs the whole node once only the run at the gate is left of the first array."""
    wait_until((folder / "waiting").exists, "a run at the gate")
    wait_until(lambda: _num_ended(sweep) == len(_FIRST) - 1, "the end of the others")
    if (folder / "watch.log").exists():
        wait_until(lambda: "way=killed  killed" in (folder / "watch.log").read_text(), "the output of watch")
    slurm("sbatch", "--partition=urgent", "--exclusive", f"--output={folder}/urgent.log", "--wrap=true")
    wait_until((folder / "told").exists, "the signal to the run")


def _num_ended(sweep: SweepPaths) -> int:
    return sum(run.record.status.is_ended for run in read_sweep(sweep).runs)


def _is_end(line: str) -> bool:
    return line.startswith(("✓", "✗"))
