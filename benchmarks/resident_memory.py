"""Peak memory of a run with its data on the device, minus that of a plain loop, relative to the size of the data."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from benchmarks.command_line import Settings, run_benchmark
from benchmarks.interleaving import Contender, StoppingRule, run_interleaved
from benchmarks.processes import run_python
from benchmarks.resident_run import DATA_BYTES
from benchmarks.rows import Budget, Row, format_megabytes

__all__ = ["measure"]

_BUDGET = Budget(1.2)
_LOADERS = {"tensors": ("resident", "dataloader"), "samples": ("resident",)}
_DESCRIPTIONS = {"tensors": "bytes in tensors", "samples": "floats, read sample by sample"}


def measure(settings: Settings) -> list[Row]:
    """Return a row per loader and data set; only the resident loader has a budget, the other shows tracking alone.

    Measured is the memory of the device, or on the CPU that of the process.
    """
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for data, loaders in _LOADERS.items():
            contenders = {loader: _peak(loader, data, settings.device, Path(folder)) for loader in ("plain", *loaders)}
            samples = run_interleaved(
                contenders, stopping_rule=settings.stopping_rule, seed=settings.seed, warm_up_rounds=0
            )
            rows += [_row(loader, data, samples) for loader in loaders]
    return rows


def _peak(loader: str, data: str, device: str, folder: Path) -> Contender:
    args = ("-m", "benchmarks.resident_run", loader, data, "--device", device)

    def once() -> float:
        return float(run_python(*args, folder=folder).output.split()[-1])

    return once


def _row(loader: str, data: str, samples: Mapping[str, Sequence[float]]) -> Row:
    size = DATA_BYTES[data]
    shares = [(ours - plain) / size for ours, plain in zip(samples[loader], samples["plain"], strict=True)]
    middle, low, high = median(shares), min(shares), max(shares)
    is_resident = loader == "resident"
    return Row(
        f"peak memory with `loader={loader}` minus a plain loop's / "
        f"{format_megabytes(size)} of data ({_DESCRIPTIONS[data]})",
        format_megabytes(median(samples[loader])),
        format_megabytes(median(samples["plain"])),
        f"{middle:.3g}" if len(shares) == 1 else f"{middle:.3g} ({low:.3g} to {high:.3g})",
        rounds=str(len(shares)),
        budget=str(_BUDGET) if is_resident else "-",
        met=_BUDGET.verdict(middle, low, high) if is_resident else "-",
    )


if __name__ == "__main__":
    # Memory does not drift, so one round suffices.
    run_benchmark(
        "resident_memory",
        measure,
        summary=__doc__,
        stopping_rule=StoppingRule(min_rounds=1, max_rounds=1),
        has_device=True,
    )
