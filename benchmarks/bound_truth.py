"""Whether a hint names what bounds a run: runs built to be bound by one thing each, and what is said of them.

python -m benchmarks.bound_truth --write

takes a few minutes: the device's ceilings are measured as `runmanager doctor --calibrate` does, then each kind has a
sweep of a few seeds, each a run in a process of its own. On a CPU the slow transfer is that of a stand-in.
"""

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.application import run_in_process
from benchmarks.page import MEASUREMENT, described_machine, write_section
from runmanager.records.files.paths import SweepPaths
from runmanager.results.findings.bottleneck import Bottleneck, find_bottleneck
from runmanager.results.load.loader import read_results

__all__ = ["CASES", "Case", "hints", "report"]


@dataclass(frozen=True)
class Case:
    """A run that is bound by `kind`: what it is in words, and the settings that make it so."""

    kind: str
    words: str
    settings: tuple[str, ...]


_COMMON = ("epochs=4", "optimizer=sgd", "checkpoint.every=0", "tensorboard.enabled=false")
_FAKE = ("dataset=fake", "dataset.val_size=8", "loader=resident")
_OWN = ("dataset=custom", "model=logistic", "batch_size=20")
CASES = (
    Case("input", "samples that take 2 ms each", (*_OWN, "dataset._target_=benchmarks.bound.SlowSamples")),
    Case("transfer", "batches that take 20 ms to arrive", (*_OWN, "dataset._target_=benchmarks.bound.SlowToMove")),
    Case(
        "compute",
        "three layers of 1,024 units, batches of 512",
        (*_FAKE, "dataset.size=4096", "batch_size=512", "model=mlp", "model.hidden=[1024,1024,1024]"),
    ),
    Case(
        "memory",
        "multiplications of a vector of 16 MB",
        (*_FAKE, "dataset.size=120", "batch_size=8", "model=custom", "model._target_=benchmarks.bound.Elementwise"),
    ),
    Case(
        "launch",
        "400 negations of ten numbers",
        (*_FAKE, "dataset.size=240", "batch_size=8", "model=custom", "model._target_=benchmarks.bound.ManySmall"),
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


def hints(folder: Path, case: Case, *, device: str, runs: int) -> list[Bottleneck | None]:
    """What is said of so many runs of a case, each with a seed of its own."""
    seeds = ",".join(map(str, range(1, runs + 1)))
    paths = run_in_process(folder, *_COMMON, *case.settings, f"device={device}", f"seed={seeds}")
    return found_in(paths)


def found_in(paths: SweepPaths) -> list[Bottleneck | None]:
    """What is said of each run of a sweep."""
    contents, _ = read_results(paths)
    return [find_bottleneck(run) for run in contents.runs]


def report(found: Sequence[tuple[Case, Sequence[Bottleneck | None]]], *, command: str, machine: str) -> str:
    """The counts as a table in Markdown."""
    lines = [
        "| built to be bound by | with | runs | named so | named otherwise | nothing said | share of the epoch |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for case, said in found:
        shares = sorted(_share(each) for each in said if each is not None and each.kind == case.kind)
        others = sum(each is not None and each.kind != case.kind for each in said)
        share = f"{shares[0]:.0%} to {shares[-1]:.0%}" if shares else ""
        counts = (len(said), len(shares), others, sum(each is None for each in said))
        lines.append(f"| `{case.kind}` | {case.words} | {' | '.join(map(str, counts))} | {share} |")
    load = f"load {os.getloadavg()[1]:.1f} in the last five minutes"
    return "\n".join([*lines, "", f"`{command}`, {datetime.date.today().isoformat()}, {load}, on {machine}.", ""])


def _share(found: Bottleneck) -> float:
    """Of the training epoch; what is no part of that has its share of the wall time."""
    return found.whole_share if found.share is None else found.share


def _calibrate() -> None:
    """Measure the ceilings into this process's cache folder, as somebody would."""
    code = "import sys; from runmanager.cli.main import run_command; sys.exit(run_command(['doctor', '--calibrate']))"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    """Carry out the command line; status 1 where a run was said to be bound by something else."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="of each kind")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--write", action="store_true", help="put the table into docs/measurement.md")
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory(prefix="bound-truth-") as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        _calibrate()
        for case in CASES:
            said = hints(Path(folder) / case.kind, case, device=options.device, runs=options.runs)
            found.append((case, said))
            print(case.kind, [each and f"{each.kind} {_share(each):.0%}" for each in said], flush=True)
    command = f"python -m benchmarks.bound_truth --runs {options.runs} --device {options.device}"
    text = report(found, command=command, machine=described_machine())
    print(text)
    if options.write:
        write_section(MEASUREMENT, "bound_truth", text)
    return 1 if any(each is not None and each.kind != case.kind for case, said in found for each in said) else 0


if __name__ == "__main__":
    sys.exit(main())
