"""The length of a measured turn in steps. Loads no torch."""

from runmanager.training.options.groups import DataLoaderOptions
from runmanager.training.options.job import TrainingOptions

__all__ = ["least_turn_steps"]

_BATCHES_A_WORKER = 2  # workers deliver their batches in bursts, and a turn must not see a part of one
_NUM_WARMUPS_OF_GRAPHS = 2  # steps of each warm-up turn where steps are captured, which three plain ones precede


def least_turn_steps(options: TrainingOptions, steps_an_epoch: int) -> int:
    """Return the fewest steps of a turn: a few batches of each loader worker, or a whole epoch if that is less.

    Workers that each epoch starts again make it a whole epoch too.
    """
    keeps_workers = not isinstance(options.loader, DataLoaderOptions) or options.loader.persistent_workers
    if options.num_workers and not keeps_workers:
        return steps_an_epoch
    least = max(1, _BATCHES_A_WORKER * options.num_workers, _NUM_WARMUPS_OF_GRAPHS if options.graphs else 1)
    return min(least, steps_an_epoch)
