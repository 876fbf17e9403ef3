"""What the ranks of a run tell each other. Loads no torch."""

import msgspec

from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.status import Outcome
from runmanager.tracking.epoch_metrics.epoch_totals import EpochTotals

__all__ = ["Answer", "Beginning", "Part"]


class Beginning(msgspec.Struct, frozen=True):
    """A rank that has started the run. Rank 0 tells the run's folder, whether it `trains`, or why it has not begun."""

    process: ProcessIdentity
    trains: bool = True
    folder: str = ""
    error: str = ""


class Part(msgspec.Struct, frozen=True):
    """What one rank measured in an epoch; without totals its run has ended, with `error` if it failed.

    `stop` is what the rank asks for: to stop after this epoch.
    """

    number: int = 0
    totals: EpochTotals | None = None
    memory_bytes: int | None = None
    stop: Outcome | None = None
    error: str = ""


class Answer(msgspec.Struct, frozen=True):
    """What all ranks have measured, as rank 0 answers; without totals its run has ended, with `error` if it failed.

    `stop` is what any rank has asked for. `next_steps` is the length of the next interval of steps.
    """

    totals: EpochTotals | None = None
    stop: Outcome | None = None
    next_steps: int = 1
    error: str = ""
