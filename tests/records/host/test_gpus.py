"""GPUs, found without torch on machines made of files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runmanager.records.host.gpus import exclusive_gpus, find_gpus


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("0", ("0",)),
        ("2, 0,3", ("2", "0", "3")),
        ("GPU-1f2e,MIG-77", ("GPU-1f2e", "MIG-77")),
        ("0,-1,1", ("0",)),  # CUDA reads no further
        ("0,0", ("0",)),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
    ],
)
def test_cuda_visible_devices_decides_first(tmp_path: Path, value: str, found: tuple[str, ...]) -> None:
    (tmp_path / "0000:01:00.0").mkdir()
    assert find_gpus({"CUDA_VISIBLE_DEVICES": value}, driver=tmp_path, devices=tmp_path) == found


@pytest.fixture
def host(tmp_path: Path) -> dict[str, Path]:
    """The files of a driver of three GPUs, of which the second has no device file, and a fourth that is left out."""
    driver, devices = tmp_path / "gpus", tmp_path / "dev"
    devices.mkdir()
    for minor in range(4):
        (driver / f"0000:0{minor}:00.0").mkdir(parents=True)
        (driver / f"0000:0{minor}:00.0" / "information").write_text(
            f"Model: \t\t NVIDIA X\nGPU UUID: \t GPU-{minor}e2a-77\nDevice Minor: \t {minor}\n"
            f"GPU Excluded:\t {'Yes' if minor == 3 else 'No'}\n"
        )
        if minor != 1:
            (devices / f"nvidia{minor}").touch()
    return {"driver": driver, "devices": devices}


def test_the_driver_names_the_gpus_that_have_a_device_file(host: dict[str, Path]) -> None:
    assert find_gpus({}, **host) == ("GPU-0e2a-77", "GPU-2e2a-77")


def test_gpus_whose_unique_names_are_not_known_yet_are_numbered(host: dict[str, Path]) -> None:
    for information in host["driver"].glob("*/information"):
        information.write_text(information.read_text().replace("GPU-2e2a-77", "GPU-????????-????"))
    assert find_gpus({}, **host) == ("0", "1")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("1", ("1",)),
        ("0,2,1", ("0",)),  # there are two
        ("GPU-2", ("GPU-2e2a-77",)),  # a beginning that is only one GPU's
        ("GPU-2e2a-77,GPU-5,GPU-0", ("GPU-2e2a-77",)),
        ("GPU-", ()),
        ("MIG-GPU-2e2a-77/1/0,0", ("MIG-GPU-2e2a-77/1/0", "0")),
    ],
)
def test_names_in_cuda_visible_devices_are_of_gpus_that_are_here(
    host: dict[str, Path], value: str, found: tuple[str, ...]
) -> None:
    assert find_gpus({"CUDA_VISIBLE_DEVICES": value}, **host) == found


def _nvidia_smi(folder: Path, script: str) -> None:
    folder.mkdir()
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (
            "echo 'GPU 0: X (UUID: GPU-1)'; echo '  MIG 1g.5gb Device 0: (UUID: MIG-2)'; "
            "echo '  MIG 1g.5gb Device 1: (UUID: MIG-4)'; echo 'GPU 1: X (UUID: GPU-3)'",
            ("MIG-2", "MIG-4", "GPU-3"),
        ),
        ("echo 'no driver'; exit 9", ()),
    ],
)
@pytest.mark.parametrize("has_folder", [False, True])
def test_nvidia_smi_decides_where_the_driver_lists_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, found: tuple[str, ...], has_folder: bool
) -> None:
    if has_folder:
        (tmp_path / "gpus").mkdir()
    _nvidia_smi(tmp_path / "bin", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert find_gpus({}, driver=tmp_path / "gpus") == found


def test_nvidia_smi_lists_the_slices_of_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: dict[str, Path]
) -> None:
    (tmp_path / "capabilities" / "gpu2" / "mig" / "gi1").mkdir(parents=True)
    _nvidia_smi(tmp_path / "bin", "echo 'GPU 0: X (UUID: GPU-0)'; echo '  MIG 1g Device 0: (UUID: MIG-2)'")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert find_gpus({}, **host) == ("MIG-2",)


def test_gpus_in_exclusive_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _nvidia_smi(tmp_path / "bin", "echo 'GPU-1, Default'; echo 'GPU-2, Exclusive_Process'")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert exclusive_gpus() == ["GPU-2"]


def test_a_machine_without_any_source_has_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_gpus({}, driver=tmp_path / "none") == ()


def test_finding_gpus_loads_no_torch() -> None:
    script = "from runmanager.records.host.gpus import find_gpus; find_gpus()"
    script += "; import sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "False\n"
