"""Tests of `runmanager doctor --calibrate`: rates are printed with units and stored for the runs."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from runmanager.cli import torch_checks
from runmanager.cli.machine_checks import device_peaks_check
from runmanager.cli.torch_checks import peak_rows
from runmanager.records.host.gpus import DevicePeaks, read_device_peaks
from runmanager.tracking.monitoring import calibration

GPU = DevicePeaks(
    device_name="H200",
    flops_per_second={"fp32": 5.1234e13, "tf32": 4e14},
    copy_bytes_per_second=4.1e12,
    transfer_bytes_per_second=5.5e10,
    dispatch_seconds=2.5e-6,
    measured_at="2026-11-21T12:00:00+00:00",
)


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch_checks, "SECONDS", 0.0)
    monkeypatch.setattr(calibration, "_MIN_PRODUCT_SECONDS", 0.0)
    monkeypatch.setattr(calibration, "_COPY_BYTES", 2**20)


def test_measured_rates_are_printed_and_stored(command: Callable, tmp_path: Path) -> None:
    path = tmp_path / "runmanager" / "ceilings.json"
    assert "none measured" in device_peaks_check(path).finding
    done = command("doctor", "--calibrate", "--threads", "1")
    assert done.status == 0 and done.err == ""
    for words in ("matrix product, fp32", "GFLOP/s", "copy, read and written", "GB/s", "one operation", "µs"):
        assert words in done.out
    assert str(path) in done.out.replace("\n", "")
    kept = read_device_peaks(path)
    assert [each.threads for each in kept if each.threads is not None] == [1]
    assert all(each.torch == str(torch.__version__) for each in kept)
    assert device_peaks_check(path).finding.startswith(f"{len(kept)} measured, ")


def test_rows_have_units() -> None:
    assert peak_rows(GPU) == [
        ("matrix product, fp32", "51,234.0 GFLOP/s"),
        ("matrix product, tf32", "400,000.0 GFLOP/s"),
        ("copy, read and written", "4,100.0 GB/s"),
        ("transfer from the host", "55.0 GB/s"),
        ("one operation dispatched", "2.50 µs"),
    ]
    assert peak_rows(DevicePeaks(device_name="none")) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--calibrate", "--threads", "0"), "`--threads` must be at least 1, got 0"),
        (("--threads", "2"), "`--threads` must come with --calibrate, got 2 without it"),
    ],
)
def test_invalid_thread_counts_are_rejected(command: Callable, words: tuple[str, ...], message: str) -> None:
    done = command("doctor", *words)
    assert done.status == 2 and done.err.startswith(f"error: {message}")
