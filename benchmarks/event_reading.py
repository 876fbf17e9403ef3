"""Time to read the event files of other programs: our reader against TensorBoard's EventAccumulator."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule, run_interleaved, timed
from benchmarks.rows import Budget, Row, ratio_row

__all__ = ["measure"]

_TAGS = ("train/loss", "train/accuracy", "val/loss", "val/accuracy", "learning_rate")
_NUM_STEPS = 4000
_STOPPING_RULE = StoppingRule(min_rounds=6, max_rounds=9, max_seconds=60)
_BUDGET = Budget(6, is_minimum=True)

Values = dict[str, list[tuple[int, float]]]
"""Steps and values by tag, in the order written."""


def measure(settings: Settings) -> list[Row]:
    """Return a row per format: PyTorch's, TensorFlow 2's with tensors, and several scalars per event."""
    with tempfile.TemporaryDirectory() as name:
        return [_row(Path(name, kind), kind, write, settings) for kind, write in _WRITERS.items()]


def _row(folder: Path, kind: str, write: Callable[[Path], None], settings: Settings) -> Row:
    write(folder)
    if _ours(folder) != _theirs(folder):
        raise RuntimeError(f"Both readers must find the same values, got different ones ({kind}).")
    contenders = {"ours": timed(lambda: _ours(folder)), "theirs": timed(lambda: _theirs(folder))}
    seconds = run_interleaved(contenders, stopping_rule=settings.stopping_rule, seed=settings.seed)
    what = f"{len(_TAGS) * _NUM_STEPS:,} scalars, {kind}: TensorBoard's EventAccumulator / ours"
    row, _ = ratio_row(what, ours=seconds["ours"], other=seconds["theirs"], budget=_BUDGET, inverse=True)
    return row


def _ours(folder: Path) -> Values:
    from runmanager.results.tfevents.table import read_event_folders

    (found,) = read_event_folders(folder).values()
    return {tag: list(zip(each.steps, each.values, strict=True)) for tag, each in found.scalars.items()}


def _theirs(folder: Path) -> Values:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    no_limit: Mapping[str, int] = {"scalars": 0, "tensors": 0}
    accumulator = EventAccumulator(str(folder), size_guidance=dict(no_limit)).Reload()
    tags = accumulator.Tags()
    found: Values = {tag: [(each.step, each.value) for each in accumulator.Scalars(tag)] for tag in tags["scalars"]}
    for tag in tags["tensors"]:
        found[tag] = [
            (each.step, float(tensor_util.make_ndarray(each.tensor_proto))) for each in accumulator.Tensors(tag)
        ]
    return found


def _write_with_pytorch(folder: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for step, values in enumerate(_values()):
            for tag, value in zip(_TAGS, values, strict=True):
                writer.add_scalar(tag, value, step)


def _write_tensors(folder: Path) -> None:
    """Write scalars in the format of `tf.summary.scalar`, without TensorFlow."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.scalar import metadata
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util import tensor_util

    writer = EventFileWriter(str(folder))
    summary_metadata = metadata.create_summary_metadata(display_name=None, description=None)
    for step, values in enumerate(_values()):
        for tag, value in zip(_TAGS, values, strict=True):
            tensor = tensor_util.make_tensor_proto(np.float32(value))
            summary = Summary(value=[Summary.Value(tag=tag, tensor=tensor, metadata=summary_metadata)])
            writer.add_event(Event(wall_time=1e9 + step, step=step, summary=summary))
    writer.close()


def _write_merged(folder: Path) -> None:
    """Write several scalars per event, as TensorFlow 1 does for a merged summary and as our runs do."""
    from runmanager.tracking.tensorboard.event_writer import EventWriter

    folder.mkdir()
    writer = EventWriter(folder)
    for step, values in enumerate(_values()):
        writer.scalars(dict(zip(_TAGS, values, strict=True)), step)
    writer.close()


def _values() -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    return np.random.default_rng(0).normal(size=(_NUM_STEPS, len(_TAGS)))


_WRITERS: Mapping[str, Callable[[Path], None]] = {
    "as PyTorch's SummaryWriter writes them": _write_with_pytorch,
    "as TensorFlow 2 writes them": _write_tensors,
    "five in one event, as TensorFlow 1 writes them": _write_merged,
}


if __name__ == "__main__":
    run_benchmark("event_reading", measure, summary=__doc__, stopping_rule=_STOPPING_RULE)
