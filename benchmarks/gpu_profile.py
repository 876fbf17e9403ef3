"""Profile of an epoch of the tutorial's CNN on a GPU, in Markdown: kernels by torch.profiler, and the epoch's phases.

There are two runs of the built-in job with the data on the device: one eager, one with captured steps. The epochs that
are timed run without the profiler, which slows down the host but not the kernels; the second to last epoch is profiled.
The bottleneck that `compare` reports is shown for comparison.
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

from benchmarks.our_training import CNN_ON_MNIST, EpochListener, compose_cell, train
from benchmarks.rows import format_seconds, heading_lines, table_line
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
    """A span of device activity from `begin` to `end`, in microseconds of the profiler's clock."""

    name: str
    begin: float
    end: float


@dataclass(frozen=True)
class _Profiled:
    """A run and the profile of one of its epochs."""

    run: StoredRun
    spans: Sequence[Span]
    num_launches: int


def busy_seconds(spans: Iterable[Span]) -> float:
    """Return the seconds during which at least one span was active."""
    total, until = 0.0, float("-inf")
    for span in sorted(spans, key=lambda each: each.begin):
        total += max(0.0, span.end - max(span.begin, until))
        until = max(until, span.end)
    return total * 1e-6


def _profiled(args: Sequence[str], device: torch.device) -> _Profiled:
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities):
        pass  # starting is slow, and the profiler sees captured steps only if it ran before the capture
    profiler = profile(activities=activities)

    def ended(record: EpochRecord, _: Sequence[float]) -> bool:
        if record.epoch == _PROFILED - 1:
            profiler.start()
        elif record.epoch == _PROFILED:
            profiler.stop()
        return True

    with tempfile.TemporaryDirectory() as folder:
        train(compose_cell(args), Path(folder), listener=EpochListener(lambda: None, ended))
        run = read_run(SweepPaths(Path(folder)).run("run"))
    events = list(profiler.events() or ())
    spans = [
        Span(each.name, each.time_range.start, each.time_range.end)
        for each in events
        # Ranges that enclose kernels are not kernels: an optimiser step, a user annotation.
        if each.device_type.name == device.type.upper()
        and not each.name.startswith("Optimizer.")
        and not each.is_user_annotation
    ]
    launches = sum(each.device_type.name == "CPU" and any(kind in each.name for kind in _LAUNCHES) for each in events)
    return _Profiled(run, spans, launches)


def report(name: str, found: "_Profiled") -> str:
    """Format a Markdown section about one run."""
    timed = [epoch for epoch in found.run.epochs if not epoch.warmup and epoch.epoch not in (_PROFILED, _PROFILED + 1)]
    parts = ("epoch", "data", "transfer", "compute", "eval")
    times = {part: median(getattr(epoch, f"{part}_seconds") or 0.0 for epoch in timed) for part in parts}
    busy, whole = busy_seconds(found.spans), times["epoch"] + times["eval"]
    rows = [
        *(
            (f"`{part}_seconds`, median of {len(timed)} epochs", format_seconds(seconds))
            for part, seconds in times.items()
        ),
        ("device busy, in training and evaluation", f"{format_seconds(busy)}, {busy / whole:.0%} of both"),
        ("launches by the host, in both", f"{found.num_launches:,}"),
        ("bottleneck reported by `compare`", _hint(found.run)),
    ]
    lines = [f"### {name}", "", *heading_lines(("what", "measured")), *map(table_line, rows), ""]
    return "\n".join([*lines, *_kernels(found.spans), ""])


def _hint(run: StoredRun) -> str:
    bound = find_bottleneck(run)
    return "none clear" if bound is None else f"{bound.kind}: {bound.whole_share:.0%} of the wall time {bound.evidence}"


def _kernels(spans: Sequence[Span]) -> list[str]:
    seconds: dict[str, float] = defaultdict(float)
    counts = Counter(span.name for span in spans)
    for span in spans:
        seconds[span.name] += (span.end - span.begin) * 1e-6
    total = sum(seconds.values())
    longest = sorted(seconds, key=lambda name: -seconds[name])[:_NUM_KERNELS]
    heading = [table_line(("kernel", "calls", "total seconds", "share")), table_line(("---", "--:", "--:", "--:"))]
    return heading + [
        table_line(
            (f"`{_short(name)}`", f"{counts[name]:,}", format_seconds(seconds[name]), f"{seconds[name] / total:.1%}")
        )
        for name in longest
    ]


def _short(name: str) -> str:
    """Shorten a kernel name and replace characters that would end a table field."""
    return (name if len(name) <= 90 else f"{name[:87]}...").replace("|", "/").replace("`", "'")


def main() -> None:
    """Profile both runs given by the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the files of MNIST")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    device = torch.device(options.device)
    args = [*CNN_ON_MNIST, *_CELL, f"data_root={options.data}", f"device={device}"]
    captured = "graphs=true" if device.type == "cuda" else "graphs=auto"
    for name, choice in (("Eager steps", "graphs=false"), ("Captured steps", captured)):
        print(report(name, _profiled([*args, choice], device)))


if __name__ == "__main__":
    main()
