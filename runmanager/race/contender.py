"""The process of a contender of the built-in job. Loads no torch until it is called."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runmanager.records.run.status import Outcome

if TYPE_CHECKING:
    from runmanager.training.options.job import TrainingOptions


@dataclass(frozen=True)
class Seen:
    """What the process of a contender saw; `failure` is set where it failed. See `train_contender`."""

    failure: Outcome | None = None
    device: str = ""
    shares: Mapping[str, float] = field(default_factory=dict)
    start_seconds: float = 0.0
    step_seconds: float = 0.0
    epoch_steps: int = 1
    splits: bool = True
    chosen: Mapping[str, bool | int | None] = field(default_factory=dict)


def run_contender(options: "TrainingOptions", threads: int | None) -> Seen:
    """Train a cell's job in the turns of this process."""
    import torch

    from runmanager.launching.local.turns import current_turn_client
    from runmanager.tracking.lifecycle.outcome import outcome_of
    from runmanager.training.speed_race import train_contender

    if threads is not None:
        torch.set_num_threads(threads)
    turns = current_turn_client()
    assert turns is not None, "a contender takes turns"
    try:
        return Seen(**train_contender(options, turns))
    except EOFError:
        raise  # its driver is gone
    except Exception as error:
        return Seen(failure=outcome_of(error, batch_size=options.batch_size))
