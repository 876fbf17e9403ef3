"""Comparison with other tools: PyTorch Lightning's loop, and experiment trackers.

`pip install '.[bench]'` installs them. A tool that is not installed is skipped, and its row says so.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks import lightning_sides, tracker_sides
from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import StoppingRule
from benchmarks.mnist_files import find_or_generate
from benchmarks.rows import Row, ratio_row
from benchmarks.side_processes import run_sides_interleaved
from benchmarks.trackers import OURS, PEERS, UNTRACKED, version_of

__all__ = ["measure"]

_LIGHTNING = "lightning"
_LABELS = {
    "steps": "a tracked step",
    "epochs": f"an epoch of {tracker_sides.NUM_STEPS} steps",
}
_STOPPING_RULE = StoppingRule(min_rounds=6, max_rounds=15, max_seconds=60, half_width=0.03)
"""For each of the three comparisons: Lightning's epoch, a tracked step, a tracked epoch."""


def measure(settings: Settings) -> list[Row]:
    """Return the rows of Lightning's epochs, tracked steps and tracked epochs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [
            *_lightning_rows(settings, folder),
            *_tracker_rows(settings, folder, "steps"),
            *_tracker_rows(settings, folder, "epochs"),
        ]


def _lightning_rows(settings: Settings, folder: Path) -> list[Row]:
    version = version_of(_LIGHTNING)
    if version is None:
        return [_missing("epoch by PyTorch Lightning / ours", _LIGHTNING)]
    images = find_or_generate(folder)
    args = ("--data", str(images.root), "--device", settings.device)
    sides = {side: ("-m", "benchmarks.lightning_sides", side, *args) for side in lightning_sides.SIDES}
    seconds = _in_turns(settings, folder, sides)
    what = f"epoch of {lightning_sides.NUM_SAMPLES:,} images ({images.name}), batch size {lightning_sides.BATCH_SIZE}"
    pairs = {
        f"{what}: PyTorch Lightning {version}, torchvision's dataset in a DataLoader / ours": ("lightning", "ours"),
        f"the same with our network and resident loader on both sides: PyTorch Lightning {version} / ours": (
            "lightning with our loader",
            "ours with nothing but the loader",
        ),
    }
    return [
        ratio_row(label, ours=seconds[ours], other=seconds[other], inverse=True)[0]
        for label, (other, ours) in pairs.items()
    ]


def _tracker_rows(settings: Settings, folder: Path, work: str) -> list[Row]:
    versions = {name: version_of(needs) for name, (needs, _) in PEERS.items()}
    installed = [name for name, version in versions.items() if version is not None]
    # Only training epochs are compared with the untracked loop: without training it does nothing.
    baselines = [UNTRACKED] if work == "epochs" else []
    args = ("-m", "benchmarks.tracker_sides", "--device", settings.device, work)
    sides = {name: (*args, name) for name in (OURS, *baselines, *installed)}
    seconds = _in_turns(settings, folder, sides, parts=tracker_sides.PARTS[work])
    rows = []
    for name in (*baselines, *PEERS):
        version = f" ({PEERS[name][0]} {versions[name]})" if versions.get(name) else ""
        what = f"{_LABELS[work]}: {name}{version} / ours"
        if name in seconds:
            rows.append(ratio_row(what, ours=seconds[OURS], other=seconds[name], inverse=True)[0])
        else:
            rows.append(_missing(what, PEERS[name][0]))
    return rows


def _in_turns(
    settings: Settings, folder: Path, sides: Mapping[str, tuple[str, ...]], *, parts: int = 1
) -> dict[str, list[float]]:
    return run_sides_interleaved(
        sides, folder=folder, stopping_rule=settings.stopping_rule, seed=settings.seed, parts=parts
    )


def _missing(what: str, distribution: str) -> Row:
    return Row(what, f"skipped: {distribution} is not installed", rounds="0")


if __name__ == "__main__":
    run_benchmark("peers", measure, summary=__doc__, stopping_rule=_STOPPING_RULE, has_device=True)
