"""Bottleneck hints for real runs that are built with one bottleneck."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from benchmarks import bound_workloads
from benchmarks.bound_truth import CASES, report
from benchmarks.bound_workloads import SlowSamples, SlowTransfers
from runmanager.app.run_cell import train_cell
from runmanager.records.files.paths import RunPaths
from runmanager.records.host.gpus import DevicePeaks
from runmanager.records.storage.reader import StoredRun, read_run
from runmanager.results.findings.bottleneck import Bottleneck, find_bottleneck
from runmanager.results.findings.roofline import full_batches, work_of
from runmanager.tracking.sinks import LogSink
from runmanager.training.options.dataset import FakeOptions
from runmanager.training.options.groups import (
    ConstantOptions,
    DataLoaderOptions,
    LogisticOptions,
    MlpOptions,
    ResidentOptions,
    SgdOptions,
)
from runmanager.training.options.job import CheckpointOptions, TrainingOptions

SLOW = {"loader": DataLoaderOptions(), "model": LogisticOptions(), "batch_size": 50, "epochs": 3}
RUNS: dict[str, dict[str, Any]] = {
    "input": SLOW
    | {"dataset": {"_target_": f"benchmarks.bound_workloads.{SlowSamples.__name__}", "milliseconds": 1.0}},
    "transfer": SLOW
    | {"dataset": {"_target_": f"benchmarks.bound_workloads.{SlowTransfers.__name__}", "milliseconds": 50.0}},
    "compute": {
        "dataset": FakeOptions(size=256, val_size=8),
        "model": MlpOptions(hidden=[512, 512]),
        "batch_size": 128,
    },
    "memory": {"model": {"_target_": "benchmarks.bound_workloads.Elementwise", "length": 2_000_000}},
    "launch": {"model": {"_target_": "benchmarks.bound_workloads.ManySmallOperations"}},
    "eval": {"dataset": FakeOptions(size=8, val_size=20_000), "model": LogisticOptions(), "epochs": 3},
}
# A typical core: 100 GFLOP/s, 10 GB/s, one microsecond per launch.
TYPICAL = {"flops_per_second": 1e11, "copy_bytes_per_second": 1e10, "dispatch_seconds": 1e-6}


def train(folder: Path, fields: dict[str, Any]) -> StoredRun:
    """Train a run as the application does and read it back; enough epochs make the median robust."""
    options = TrainingOptions(
        **{
            "device": "cpu",
            "epochs": 10,
            "batch_size": 8,
            "dataset": FakeOptions(size=32, val_size=8),
            "optimizer": SgdOptions(),
            "scheduler": ConstantOptions(),
            "loader": ResidentOptions(),
            "checkpoint": CheckpointOptions(every=0),
            **fields,
        }
    )
    paths = RunPaths(folder / "runs" / "one")
    train_cell(paths, options, {"batch_size": options.batch_size, "device": "cpu"}, sinks=[LogSink()])
    return read_run(paths)


def on_typical_core(run: StoredRun, *, reached: float) -> StoredRun:
    """Return the run with ceilings of a typical core, slowed down so that the run reaches the share `reached` of them.

    The hint then depends on the counted work alone, not on the speed and load of this machine.
    """
    environment = run.record.environment
    compute = [epoch.compute_seconds for epoch in run.epochs if not epoch.warmup]

    def slower_by(times: float) -> StoredRun:
        ceilings = DevicePeaks(
            device_name=environment.device_name,
            threads=environment.torch_threads,
            flops_per_second={"fp32": TYPICAL["flops_per_second"] / times},
            copy_bytes_per_second=TYPICAL["copy_bytes_per_second"] / times,
            dispatch_seconds=TYPICAL["dispatch_seconds"] * times,
        )
        facts = msgspec.structs.replace(run.record.measurements, ceilings=ceilings)
        record = msgspec.structs.replace(run.record, measurements=facts)
        return StoredRun(run.paths, record, run.epochs)

    batches = full_batches(run)
    at_best = [work.per_step * batches / work.at_best for work in work_of(slower_by(1.0)).values() if work.at_best]
    return slower_by(reached * sorted(compute)[len(compute) // 2] / max(at_best))


@pytest.mark.parametrize("kind", ["input", "transfer"])
def test_hint_names_what_a_run_waits_for(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch, let_pass: Callable[[float], None]
) -> None:
    # Simulated delays a thousand times as long, so that other load hardly matters.
    monkeypatch.setattr(bound_workloads, "time", SimpleNamespace(sleep=lambda seconds: let_pass(1000 * seconds)))
    found = find_bottleneck(train(tmp_path, RUNS[kind]))
    assert found is not None
    assert found.kind == kind
    assert found.at_most == pytest.approx(1 / (1 - found.share))


@pytest.mark.parametrize("kind", ["compute", "memory", "launch"])
def test_hint_names_the_work_that_bounds_a_run(tmp_path: Path, kind: str) -> None:
    run = train(tmp_path, RUNS[kind])
    found = find_bottleneck(on_typical_core(run, reached=0.8))
    assert found is not None
    assert found.kind == kind
    # Work that explains less than half of the time gives no hint.
    assert find_bottleneck(on_typical_core(run, reached=0.4)) is None


def test_hint_names_evaluation(tmp_path: Path) -> None:
    found = find_bottleneck(train(tmp_path, RUNS["eval"]))
    assert found is not None
    assert (found.kind, found.share) == ("eval", None)
    assert found.whole_at_most == pytest.approx(1 / (1 - found.whole_share))


def test_table_counts_hints_by_kind() -> None:
    right = [Bottleneck("input", share, 2.0, share, 2.0, "", "") for share in (0.5, 0.75)]
    wrong = Bottleneck("memory", 0.9, 1.1, 0.9, 1.1, "", "")
    text = report([(CASES[0], [*right, wrong, None]), (CASES[1], [None])], command="the command", machine="here")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    assert [row[2:6] for row in rows] == [["4", "2", "1", "1"], ["1", "0", "0", "1"]]
    assert rows[0][6] == "50% to 75% |"
    assert [case.kind for case in CASES] == list(RUNS)
