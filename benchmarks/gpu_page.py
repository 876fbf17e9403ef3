"""Write docs/results/gpu.md from the results of benchmarks/gpu.sh.

tar xzf gpu-results.tar.gz && python -m benchmarks.gpu_page gpu-results --write
"""

import argparse
import csv
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rows import HEADING, Budget, Row, format_seconds, heading_lines, parse_rows, table_line
from runmanager.errors import UsageError

__all__ = ["GpuResults", "page", "write_page"]

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "results" / "gpu.md"
_COMMITTED = ("sweep.json", "results.csv", "epochs.csv", "comparison.csv")
_EPOCH_GOAL = Budget(0.010, format=format_seconds)
_NONE = "-"
_NOT_RUN, _CUT_OFF = "not ", "cut off"  # prefixes of outcomes: not run, not started; cut off after 9 s
_COUNTED = re.compile(r"^=* ?(\d+ (?:passed|failed|skipped)\b.* in [\d.]+s).*$", re.MULTILINE)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/gpu/.+?)(?: - .*)?$", re.MULTILINE)

_SECTIONS = {
    "devices": (
        "GPU and CPU compared",
        "The preset `cuda_vs_cpu` on generated images in MNIST's format, with the tutorial's batch sizes and workers.",
    ),
    "crossover": (
        "Number of parameters at which the GPU overtakes",
        "The preset `gpu_crossover`, wider than the tutorial's, which found 700,000; on the GPU with eager and with "
        "captured steps (`graphs=true`).",
    ),
    "loaders": ("Data on the GPU", "The tutorial's network with a loader, and with the data on the GPU."),
    "tutorial": (
        "The tutorial's epoch and ours",
        "Interleaved: the tutorial's loop, and the built-in job with the data on the GPU and captured steps.",
    ),
    "epoch": (
        "The CNN's epoch",
        "The tutorial's network on 60,000 images at batch size 1,000, the data on the GPU.",
    ),
    "profile": (
        "Where the time of that epoch goes",
        "`torch.profiler` over one epoch, the phases of unprofiled epochs, and the bottleneck that `compare` reports.",
    ),
    "tracking": ("What tracking adds", "The same steps with and without tracking (scalars every step), interleaved."),
    "meters": ("The GPU's meters", "What the documents assume of them."),
    "paired": (
        "GPU and CPU in turns",
        "The same network on both, interleaved, with the GPU's clock at the ends of turns.",
    ),
    "regions": (
        "Bound by launches or by work",
        "The same network from small batches to the whole set in one batch: the gain of captured steps, and the share "
        "of the GPU's measured ceilings.",
    ),
    "resnet18": (
        "ResNet-18",
        "On random images of CIFAR's shape: precision, memory format and captured steps, with the GPU's ceilings.",
    ),
}
"""Heading and description by part of gpu.sh."""


@dataclass(frozen=True)
class GpuResults:
    """The unpacked folder of gpu-results.tar.gz. Raises `UsageError` for any other folder."""

    folder: Path

    def __post_init__(self) -> None:
        if not self._summaries:
            way_out = "unpack gpu-results.tar.gz"
            raise UsageError(f"The folder must hold results of benchmarks/gpu.sh, got {self.folder}; {way_out}.")

    @property
    def rehearsal(self) -> str:
        """Notice that the results are a rehearsal without a GPU; empty for real results."""
        return self.text("REHEARSAL")

    @property
    def _summaries(self) -> list[Path]:
        """Summaries in the order of the commands; their names are start times in seconds."""
        return sorted((self.folder / "summaries").glob("*.tsv"))

    @property
    def parts(self) -> dict[str, tuple[str, str]]:
        """Seconds and outcome of each part, from the last command that started it."""
        found: dict[str, tuple[str, str]] = {}
        for path in self._summaries:
            with path.open(newline="") as file:
                for row in csv.DictReader(file, delimiter="\t"):
                    if row["part"] not in found or not row["ended"].startswith(_NOT_RUN):
                        found[row["part"]] = row["seconds"], row["ended"]
        return found

    def text(self, name: str) -> str:
        """Return the text of a file, empty if it does not exist."""
        path = self.folder / name
        return path.read_text().strip() if path.is_file() else ""

    def tables(self, part: str) -> list[str]:
        """Return the Markdown tables of a part."""
        found = sorted((self.folder / "tables").glob(f"{part}*.md"))
        return [text for path in found if (text := path.read_text().strip())]

    def rows(self, part: str) -> list[Row]:
        """Return the rows of a benchmark's table."""
        return parse_rows(self.text(f"tables/{part}.md"))

    def results(self, sweep: str) -> list[dict[str, str]]:
        """Return the rows of a sweep's results.csv."""
        path = self.folder / "sweeps" / sweep / "results.csv"
        if not path.is_file():
            return []
        with path.open(newline="") as file:
            return list(csv.DictReader(file))


def page(results: GpuResults) -> str:
    """Format the whole page; a rehearsal's page starts with a notice."""
    head = ["# On a GPU, measured", ""]
    if results.rehearsal:
        head += [f"**{results.rehearsal}**", ""]
    head += [
        f"Made by `benchmarks/gpu.sh` on {results.text('machine.txt') or 'an unknown machine'}, "
        f"{results.text('day.txt') or 'on an unknown day'}, from commit "
        f"`{results.text('commit.txt')[:12] or 'unknown'}`, and written by `python -m benchmarks.gpu_page`. The tables "
        "of the sweeps, one row per run and one per epoch, are in `gpu/`.",
        "",
    ]
    sections = ["\n".join(_section(results, part)) for part in _SECTIONS]
    return "\n".join([*head, *_goals(results), *_checks(results), *sections, *_summary(results)])


def _goals(results: GpuResults) -> list[str]:
    heading = ("goal", "measured", "target", "met")
    lines = [*heading_lines(heading), *map(table_line, _goal_rows(results))]
    return ["## In short", "", *lines, "", *(f"{line}\n" for line in _crossings(results))]


def _goal_rows(results: GpuResults) -> Iterator[Sequence[str]]:
    for part in ("tutorial", "tracking"):
        rows = [row for row in results.rows(part) if row.budget != _NONE]
        yield from ((row.what, row.ratio, row.budget, row.met) for row in rows)
        if not rows:
            yield _SECTIONS[part][0], "not measured", _NONE, _NONE
    name = "the CNN's epoch at batch size 1,000, steps captured"
    found = [row for row in results.results("epoch") if row.get("graphs") == "True" and row["epoch_seconds"]]
    if not found:
        yield name, "not measured", str(_EPOCH_GOAL), _NONE
    for row in found:
        how = f"{row.get('precision', 'fp32')}{', compiled' if row.get('compile') == 'True' else ''}"
        seconds = float(row["epoch_seconds"])
        yield (
            f"{name}, {how}",
            format_seconds(seconds),
            str(_EPOCH_GOAL),
            _EPOCH_GOAL.verdict(seconds, seconds, seconds),
        )


def _crossings(results: GpuResults) -> list[str]:
    lines = [line for text in results.tables("crossover") for line in text.splitlines()]
    found = dict.fromkeys(line for line in lines if " overtakes " in line or line.startswith("No crossover"))
    return ["The tutorial's GPU was ahead from 700,000 parameters:", *found] if found else []


def _checks(results: GpuResults) -> list[str]:
    output, ended = results.text("said/checks.txt"), _ended(results, "checks")
    counted = _COUNTED.findall(output)
    if ended.startswith(_CUT_OFF):
        counted.append(f"{ended}, when {output.count(' PASSED')} had passed and {output.count(' FAILED')} had failed")
    failed = [f"- {line}" for line in dict.fromkeys(_FAILED.findall(output))]
    return ["## Checks", "", f"`tests/gpu`: {'; '.join(counted) or ended}.", "", *failed, *([""] if failed else [])]


def _section(results: GpuResults, part: str) -> list[str]:
    heading, description = _SECTIONS[part]
    ended = _ended(results, part)
    lines = [f"## {heading}", "", description, ""]
    if ended.startswith(_NOT_RUN):
        lines += [f"This part was {ended}.", ""]
    elif ended != "ok":
        lines += [f"This part ended early ({ended}); the results below are incomplete.", ""]
    for text in results.tables(part):
        lines += [_with_rule(text), ""]
    return lines


def _with_rule(text: str) -> str:
    """Add the rule that a printed benchmark table lacks below its heading."""
    lines = text.splitlines()
    if lines[0] == table_line(HEADING):
        lines[:1] = heading_lines(HEADING)
    return "\n".join(lines)


def _ended(results: GpuResults, part: str) -> str:
    """Return the outcome of a part."""
    return results.parts.get(part, ("", "not run"))[1]


def _summary(results: GpuResults) -> list[str]:
    lines = [table_line((name, seconds, ended)) for name, (seconds, ended) in results.parts.items()]
    return ["## What ran", "", *heading_lines(("part", "seconds", "ended")), *lines, ""]


def write_page(results: GpuResults, path: Path) -> None:
    """Write the page and the tables of the sweeps next to it. Raises `UsageError` for a rehearsal."""
    if results.rehearsal:
        raise UsageError(f"The results must come from a GPU, got a rehearsal in {results.folder}; leave out --write.")
    path.write_text(page(results))
    for sweep in sorted((results.folder / "sweeps").glob("*/")):
        folder = path.with_suffix("") / sweep.name
        folder.mkdir(parents=True, exist_ok=True)
        for name in _COMMITTED:
            if (sweep / name).is_file():
                shutil.copy(sweep / name, folder / name)


def main() -> None:
    """Print the page or, with --write, write it to the documents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the unpacked gpu-results.tar.gz")
    parser.add_argument("--write", action="store_true", help="write the page and its tables to docs/results")
    options = parser.parse_args()
    try:
        results = GpuResults(options.folder)
        if options.write:
            write_page(results, _PAGE)
        else:
            print(page(results))
    except UsageError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
