"""The process of a contender of the built-in job. Loads no torch until it is called."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runmanager.records.run.status import Outcome

if TYPE_CHECKING:
    from runmanager.training.options.job import TrainingOptions

__all__ = ["Seen", "run_contender"]

_LEAST_TURNS = 3


@dataclass(frozen=True)
class Seen:
    """What the process of a contender saw; `failure` is set where it failed. See `train_in_turns`."""

    failure: Outcome | None = None
    device: str = ""
    shares: Mapping[str, float] = field(default_factory=dict)
    start_seconds: float = 0.0
    step_seconds: float = 0.0
    epoch_steps: int = 1
    splits: bool = True
    chosen: Mapping[str, bool | int | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def run_contender(options: "TrainingOptions", threads: int | None, alone: float | None = None) -> Seen:
    """Train a cell's job in the turns of this process; `alone`, in turns of its own for as many seconds."""
    import torch

    from runmanager.launching.local.turn_keeper import current_turn_client
    from runmanager.tracking.lifecycle.outcome import outcome_of
    from runmanager.training.speed_race import SoloTurns, train_in_turns

    if threads is not None:
        torch.set_num_threads(threads)
    turns = current_turn_client() if alone is None else SoloTurns(alone, least=_LEAST_TURNS)
    assert turns is not None, "a contender that is not alone takes turns"
    try:
        return Seen(**train_in_turns(options, turns))
    except EOFError:
        raise  # its driver is gone
    except Exception as error:
        return Seen(failure=outcome_of(error, batch_size=options.batch_size))
