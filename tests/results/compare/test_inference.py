"""Comparisons by inference: a row for each batch size, and the size from which a device is faster."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest

from runmanager.errors import UsageError
from runmanager.records.run.run_record import InferenceRecord, Measurements
from runmanager.records.storage.reader import SweepContents
from runmanager.results.compare.comparison import compare
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.compare.matched_pairs import match_sides
from runmanager.results.findings.crossover import crossover_answers
from runmanager.results.gate.sweep_pairs import TwoSweeps
from runmanager.results.metrics.metric_lookup import find_metric, known_metrics
from runmanager.results.report.report import render_report
from runmanager.results.report.run_details import run_sections
from runmanager.results.sweep_snapshot import SweepSnapshot

SIZES = (1, 8, 64, 256)
Sweep = Callable[..., SweepContents]


@pytest.fixture
def sweep_of(contents: Callable[..., SweepContents], timed: Callable[..., Any]) -> Sweep:
    """Three seeds on both devices, by the seconds of a batch, with 1% of noise, and of its pauses in some runs."""

    def run(device: str, seed: int, seconds_of: Callable[..., float], pauses_of: Callable[..., float]) -> Any:
        found = []
        for size in SIZES:
            seconds = (1 + 0.01 * ((seed * 7 + size) % 3 - 1)) * seconds_of(device, size)
            found.append(
                InferenceRecord(
                    batch_size=size,
                    latency_p50_seconds=seconds,
                    latency_p90_seconds=2 * seconds,
                    latency_p99_seconds=3 * seconds + pauses_of(device, size, seed),
                    inference_samples_per_second=size / seconds,
                )
            )
        return {"device": device, "seed": seed}, timed([9.0, 1.0]), {"measurements": Measurements(inference=found)}

    return lambda seconds_of, pauses_of=lambda *_: 0.0: contents(
        *(run(device, seed, seconds_of, pauses_of) for seed in range(3) for device in ("cpu", "cuda"))
    )


@pytest.fixture
def devices(sweep_of: Sweep) -> SweepContents:
    """A CPU takes 1 ms a sample, a GPU 10 ms a batch."""
    return sweep_of(lambda device, size: 0.001 * size if device == "cpu" else 0.01)


@pytest.mark.parametrize("metric", ["latency_p50_seconds", "latency_p99_seconds", "inference_samples_per_second"])
def test_each_batch_size_has_a_row(devices: SweepContents, metric: str) -> None:
    table = compare(devices, None, CompareOptions(axis="device", metric=metric))
    assert [row["infer.batch_size"] for row in table.rows] == list(SIZES)
    assert [row["verdict"] for row in table.rows] == ["slower", "slower", "faster", "faster"]
    assert table.rows[0]["speedup"] == pytest.approx(0.1, rel=0.05)
    assert table.rows[-1]["speedup"] == pytest.approx(25.6, rel=0.05)
    assert "infer.batch_size" in table.shown


def test_pauses_of_one_batch_size_widen_its_own_interval(sweep_of: Sweep) -> None:
    def in_two_runs(device: str, size: int, seed: int) -> float:
        return 0.2 if (device, size) == ("cuda", 8) and seed else 0.0

    equal = sweep_of(lambda _, size: 0.001 * size, in_two_runs)
    rows = compare(equal, None, CompareOptions(axis="device", metric="latency_p99_seconds")).rows
    assert {row["verdict"] for row in rows} <= {"inconclusive", "no difference"}
    widths = {row["infer.batch_size"]: row["ci_high"] / row["ci_low"] for row in rows}
    assert widths[8] > 10 > 2 > widths[1]


def test_the_batch_size_from_which_a_device_is_faster(devices: SweepContents) -> None:
    options = CompareOptions(axis="device", metric="latency_p50_seconds")
    matches = match_sides(devices, None, options)
    (line,) = crossover_answers(matches, compare(devices, None, options), "infer.batch_size")
    assert line.startswith("cuda overtakes cpu at infer.batch_size = ")
    at = float(line.partition(" = ")[2].split()[0])
    assert at == pytest.approx(10.0, rel=0.1)


def test_the_report_draws_latencies_by_batch_size_with_the_crossing(devices: SweepContents) -> None:
    snapshot = SweepSnapshot(devices, None)
    figure = next(each for each in snapshot.figures if each.title == "Crossover along infer.batch_size")
    assert figure.caption.startswith("cuda overtakes cpu at infer.batch_size = ")
    assert "cpu goes from 0.001 to 0.2" in figure.description, figure.description
    assert "cuda overtakes cpu at infer.batch_size" in render_report(
        snapshot, now=datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    )


def test_two_sweeps_have_a_row_for_each_batch_size_too(devices: SweepContents) -> None:
    pair = TwoSweeps(("old", "new"), (devices, devices), (None, None))
    rows = pair.compare(CompareOptions(metric="latency_p99_seconds")).rows
    assert [row["infer.batch_size"] for row in rows] == [*SIZES, *SIZES]  # of both devices
    assert {row["speedup"] for row in rows} == {1.0}


def test_a_crossover_by_batch_size_asks_for_a_metric_of_inference(devices: SweepContents) -> None:
    options = CompareOptions(axis="device")
    with pytest.raises(UsageError, match="must go with a metric of inference, got samples_per_second; add"):
        crossover_answers(match_sides(devices, None, options), compare(devices, None, options), "infer.batch_size")


def test_the_details_of_a_run_have_its_latencies(devices: SweepContents) -> None:
    (section,) = (each for each in run_sections(devices.runs[0], shows_all=False) if each.title == "Inference")
    assert section.rows[0] == ["batches of 1", "1 ms", "2 ms", "3 ms", "1 k/s"], section.rows


def test_a_sweep_without_inference_says_so(contents: Callable[..., SweepContents], timed: Callable[..., Any]) -> None:
    sweep = contents(*(({"lr": lr}, timed([9.0, 1.0]), {}) for lr in (1, 2)))
    table = compare(sweep, None, CompareOptions(axis="lr", metric="latency_p50_seconds"))
    (row,) = table.rows
    assert row["verdict"] == "not measured" and "latency_p50_seconds" in row["reason"]
    assert "latency_p50_seconds" not in known_metrics(sweep.runs)


def test_a_ranking_needs_a_single_batch_size(devices: SweepContents) -> None:
    metric = find_metric("latency_p50_seconds", devices.runs)
    assert [metric.values(run) for run in devices.runs] == [[]] * len(devices.runs)
    assert "latency_p50_seconds" in known_metrics(devices.runs)
    with pytest.raises(UsageError, match="its direction is known"):
        find_metric("latency_p50_seconds", devices.runs, better="max")
