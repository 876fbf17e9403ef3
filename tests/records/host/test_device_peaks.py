"""Peaks of devices: stored by device, threads and version of torch; damaged files do no harm."""

from pathlib import Path

import pytest

from runmanager.records.files.paths import cache_folder, device_peaks_file
from runmanager.records.host.gpus import DevicePeaks, find_device_peaks, read_device_peaks, save_device_peaks

CPU = DevicePeaks(
    device_name="Zen 4", threads=2, flops_per_second={"fp32": 1e11}, dispatch_seconds=1e-6, torch="2.15.0"
)
GPU = DevicePeaks(device_name="H200", flops_per_second={"tf32": 4e14}, torch="2.15.0")


def find(path: Path, device_name: str = "Zen 4", threads: int | None = 2, torch: str = "2.15.0") -> DevicePeaks | None:
    return find_device_peaks(path, device_name=device_name, threads=threads, torch=torch)


def test_peaks_are_found_by_device_threads_and_torch(tmp_path: Path) -> None:
    path = tmp_path / "new" / "ceilings.json"
    assert find(path) is None and read_device_peaks(path) == []
    save_device_peaks(path, [CPU, GPU])
    assert find(path) == CPU
    assert find(path, "H200", None) == GPU
    assert find(path, threads=1) is None, "the number of threads matters"
    assert find(path, torch="2.14.0") is None
    assert find_device_peaks(None, device_name="Zen 4", threads=2, torch="2.15.0") is None


def test_new_peaks_replace_only_those_of_the_same_device(tmp_path: Path) -> None:
    path = tmp_path / "ceilings.json"
    save_device_peaks(path, [CPU, GPU])
    slower = DevicePeaks(device_name="Zen 4", threads=2, copy_bytes_per_second=1e9, torch="2.15.0")
    save_device_peaks(path, [slower])
    assert find(path) == slower and find(path, "H200", None) == GPU
    assert len(read_device_peaks(path)) == 2


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'[{"threads": 1}]', b"\xff", b'[{"device_name": "\xff"}]'])
def test_unreadable_file_counts_as_empty_and_is_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ceilings.json"
    path.write_bytes(content)
    assert find(path) is None
    save_device_peaks(path, [CPU])
    assert find(path) == CPU


def test_file_is_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert device_peaks_file() == tmp_path / "runmanager" / "ceilings.json"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/user")
    assert cache_folder() == Path("/home/user/.cache/runmanager")
