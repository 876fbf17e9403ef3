"""Accuracy of the bottleneck hint on runs that were each built with one known bottleneck.

python -m benchmarks.bound_truth --write

It takes a few minutes: `runmanager doctor --calibrate` measures the device's ceilings, then each kind of bottleneck has
a sweep of a few seeds with one process per run. On a CPU a delay stands in for the slow transfer.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.in_process_sweep import run_sweep_in_process
from benchmarks.page import MEASUREMENT, describe_machine, load_average, source_line, write_section
from benchmarks.processes import RUNMANAGER
from runmanager.records.files.paths import SweepPaths
from runmanager.results.findings.bottleneck import Bottleneck, find_bottleneck
from runmanager.results.load.loader import read_results

__all__ = ["CASES", "Case", "bottlenecks_of", "report"]


@dataclass(frozen=True)
class Case:
    """A run bound by `kind`: a description and the settings that create the bottleneck."""

    kind: str
    description: str
    settings: tuple[str, ...]


_COMMON = ("epochs=4", "optimizer=sgd", "checkpoint.every=0", "tensorboard.enabled=false")
_FAKE = ("dataset=fake", "dataset.val_size=8", "loader=resident")
_CUSTOM = ("dataset=custom", "model=logistic", "batch_size=20")
CASES = (
    Case("input", "samples that take 2 ms each", (*_CUSTOM, "dataset._target_=benchmarks.bound_workloads.SlowSamples")),
    Case(
        "transfer",
        "batches that take 20 ms to arrive",
        (*_CUSTOM, "dataset._target_=benchmarks.bound_workloads.SlowTransfers"),
    ),
    Case(
        "compute",
        "three layers of 1,024 units, batches of 512",
        (*_FAKE, "dataset.size=4096", "batch_size=512", "model=mlp", "model.hidden=[1024,1024,1024]"),
    ),
    Case(
        "memory",
        "multiplications of a vector of 16 MB",
        (
            *_FAKE,
            "dataset.size=120",
            "batch_size=8",
            "model=custom",
            "model._target_=benchmarks.bound_workloads.Elementwise",
        ),
    ),
    Case(
        "launch",
        "400 negations of ten numbers",
        (
            *_FAKE,
            "dataset.size=240",
            "batch_size=8",
            "model=custom",
            "model._target_=benchmarks.bound_workloads.ManySmallOperations",
        ),
    ),
    Case(
        "eval",
        "200 times as many images to evaluate on as to train on",
        (
            "dataset=fake",
            "dataset.size=200",
            "dataset.val_size=40000",
            "loader=resident",
            "batch_size=100",
            "model=mlp",
        ),
    ),
)


def bottlenecks_of(folder: Path, case: Case, *, device: str, runs: int) -> list[Bottleneck | None]:
    """Return the hints for `runs` runs of a case, each with a different seed."""
    seeds = ",".join(map(str, range(1, runs + 1)))
    paths = run_sweep_in_process(folder, *_COMMON, *case.settings, f"device={device}", f"seed={seeds}")
    return bottlenecks_in(paths)


def bottlenecks_in(paths: SweepPaths) -> list[Bottleneck | None]:
    """Return the hint for each run of a sweep, None where no bottleneck is clear."""
    contents, _ = read_results(paths)
    return [find_bottleneck(run) for run in contents.runs]


def report(found: Sequence[tuple[Case, Sequence[Bottleneck | None]]], *, command: str, machine: str) -> str:
    """Format the counts as a Markdown table."""
    lines = [
        "| built to be bound by | with | runs | named correctly | named wrongly | no hint | share of the epoch |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for case, hints in found:
        shares = sorted(_share(each) for each in hints if each is not None and each.kind == case.kind)
        others = sum(each is not None and each.kind != case.kind for each in hints)
        share = f"{shares[0]:.0%} to {shares[-1]:.0%}" if shares else ""
        counts = (len(hints), len(shares), others, sum(each is None for each in hints))
        lines.append(f"| `{case.kind}` | {case.description} | {' | '.join(map(str, counts))} | {share} |")
    return "\n".join([*lines, "", source_line(command, load_average(), machine=machine), ""])


def _share(found: Bottleneck) -> float:
    """Return the share of the training epoch, or of the wall time for a phase outside it."""
    return found.whole_share if found.share is None else found.share


def _calibrate() -> None:
    """Measure the device ceilings with the command and store them in this process's cache folder."""
    subprocess.run([sys.executable, *RUNMANAGER, "doctor", "--calibrate"], check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    """Run the command line. Return 1 if any hint named a wrong bottleneck."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="runs of each kind (default: %(default)s)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--write", action="store_true", help="write the table to docs/measurement_evidence.md")
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory(prefix="bound-truth-") as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        _calibrate()
        for case in CASES:
            hints = bottlenecks_of(Path(folder) / case.kind, case, device=options.device, runs=options.runs)
            found.append((case, hints))
            print(case.kind, [each and f"{each.kind} {_share(each):.0%}" for each in hints], flush=True)
    command = f"python -m benchmarks.bound_truth --runs {options.runs} --device {options.device}"
    text = report(found, command=command, machine=describe_machine())
    print(text)
    if options.write:
        write_section(MEASUREMENT, "bound_truth", text)
    return 1 if any(each is not None and each.kind != case.kind for case, hints in found for each in hints) else 0


if __name__ == "__main__":
    sys.exit(main())
