"""Where the time of the tutorial's CNN's epoch goes on a GPU: its kernels by torch.profiler, beside the epoch's phases.

Two runs of the built-in job, one that starts each operation and one whose steps are captured, with the data on the
device. Epochs are timed without the profiler, which slows the host down, not the kernels; the one before the last is
profiled. Beside it stands what `compare` says bounds the run, to be checked against it. In Markdown.
"""

import argparse
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.our_training import CNN_ON_MNIST, Listener, composed, train
from benchmarks.rows import as_line, as_seconds
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import EpochRecord
from runmanager.records.storage.reader import StoredRun, read_run
from runmanager.results.findings.bottleneck import find_bottleneck

__all__ = ["Span", "busy_seconds", "report"]

_NUM_EPOCHS = 12
_PROFILED = _NUM_EPOCHS - 1
_NUM_KERNELS = 12
_LAUNCHES = ("LaunchKernel", "GraphLaunch", "MemcpyAsync", "MemsetAsync")
_CELL = ("batch_size=1000", "eval_batch_size=10000", "loader=resident", "checkpoint.every=0", f"epochs={_NUM_EPOCHS}")


@dataclass(frozen=True)
class Span:
    """Something that the device did, from `begin` to `end`, in microseconds of the profiler's clock."""

    name: str
    begin: float
    end: float


@dataclass(frozen=True)
class _Profiled:
    """A run, and one of its epochs as the profiler saw it."""

    run: StoredRun
    spans: Sequence[Span]
    num_launches: int


def busy_seconds(spans: Iterable[Span]) -> float:
    """How long at least one of them was going on."""
    total, until = 0.0, float("-inf")
    for span in sorted(spans, key=lambda each: each.begin):
        total += max(0.0, span.end - max(span.begin, until))
        until = max(until, span.end)
    return total * 1e-6


def _profiled(words: Sequence[str], device: torch.device) -> _Profiled:
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities):
        pass  # its start takes its time; and what it is to see of a captured step, it must be there before the capture
    profiler = profile(activities=activities)

    def ended(record: EpochRecord, _: Sequence[float]) -> bool:
        if record.epoch == _PROFILED - 1:
            profiler.start()
        elif record.epoch == _PROFILED:
            profiler.stop()
        return True

    with tempfile.TemporaryDirectory() as folder:
        train(composed(words), Path(folder), listener=Listener(lambda: None, ended))
        run = read_run(SweepPaths(Path(folder)).run("run"))
    events = list(profiler.events() or ())
    spans = [
        Span(each.name, each.time_range.start, each.time_range.end)
        for each in events
        # What frames kernels on the device's timeline is none: an optimiser's step, a range that somebody has named.
        if each.device_type.name == device.type.upper()
        and not each.name.startswith("Optimizer.")
        and not each.is_user_annotation
    ]
    launches = sum(each.device_type.name == "CPU" and any(kind in each.name for kind in _LAUNCHES) for each in events)
    return _Profiled(run, spans, launches)


def report(name: str, found: "_Profiled") -> str:
    """A section of Markdown about one run."""
    timed = [epoch for epoch in found.run.epochs if not epoch.warmup and epoch.epoch not in (_PROFILED, _PROFILED + 1)]
    parts = ("epoch", "data", "transfer", "compute", "eval")
    times = {part: median(getattr(epoch, f"{part}_seconds") or 0.0 for epoch in timed) for part in parts}
    busy, whole = busy_seconds(found.spans), times["epoch"] + times["eval"]
    rows = [
        *((f"`{part}_seconds`, median of {len(timed)} epochs", as_seconds(seconds)) for part, seconds in times.items()),
        ("the device computes, in training and evaluation", f"{as_seconds(busy)}, {busy / whole:.0%} of both"),
        ("launches by the host, in both", f"{found.num_launches:,}"),
        ("what bounds it, as `compare` says", _hint(found.run)),
    ]
    lines = [f"### {name}", "", as_line(("what", "found")), as_line(("---", "---")), *map(as_line, rows), ""]
    return "\n".join([*lines, *_kernels(found.spans), ""])


def _hint(run: StoredRun) -> str:
    bound = find_bottleneck(run)
    return (
        "nothing clear" if bound is None else f"{bound.kind}: {bound.whole_share:.0%} of the wall time {bound.evidence}"
    )


def _kernels(spans: Sequence[Span]) -> list[str]:
    seconds: dict[str, float] = defaultdict(float)
    counts = Counter(span.name for span in spans)
    for span in spans:
        seconds[span.name] += (span.end - span.begin) * 1e-6
    total = sum(seconds.values())
    longest = sorted(seconds, key=lambda name: -seconds[name])[:_NUM_KERNELS]
    heading = [as_line(("kernel", "times", "seconds in all", "share")), as_line(("---", "--:", "--:", "--:"))]
    return heading + [
        as_line((f"`{_short(name)}`", f"{counts[name]:,}", as_seconds(seconds[name]), f"{seconds[name] / total:.1%}"))
        for name in longest
    ]


def _short(name: str) -> str:
    """Kernels have names of hundreds of letters, in which bars would end a table's field."""
    return (name if len(name) <= 90 else f"{name[:87]}...").replace("|", "/").replace("`", "'")


def main() -> None:
    """Profile both runs as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with MNIST's files")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    device = torch.device(options.device)
    words = [*CNN_ON_MNIST, *_CELL, f"data_root={options.data}", f"device={device}"]
    captured = "graphs=true" if device.type == "cuda" else "graphs=auto"
    for name, choice in (("Each operation launched", "graphs=false"), ("Steps captured", captured)):
        print(report(name, _profiled([*words, choice], device)))


if __name__ == "__main__":
    main()
