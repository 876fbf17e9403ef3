"""GPUs, found without torch on machines made of files."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runmanager.records.host.gpus import find_gpus


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


def test_the_driver_counts_the_gpus_that_have_a_device_file(tmp_path: Path) -> None:
    driver, devices = tmp_path / "gpus", tmp_path / "dev"
    devices.mkdir()
    for minor in range(3):
        (driver / f"0000:0{minor}:00.0").mkdir(parents=True)
        (driver / f"0000:0{minor}:00.0" / "information").write_text(
            f"Model: \t\t NVIDIA X\nIRQ:   \t\t 7\nDevice Minor: \t {minor}\n"
        )
    (devices / "nvidia0").touch()
    (devices / "nvidia2").touch()
    assert find_gpus({}, driver=driver, devices=devices) == ("0", "1")


def _nvidia_smi(folder: Path, script: str) -> None:
    folder.mkdir()
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (
            "echo 'GPU 0: X (UUID: GPU-1)'; echo '  MIG 1g.5gb Device 0: (UUID: MIG-2)'; echo 'GPU 1: X (UUID: GPU-3)'",
            2,
        ),
        ("echo 'no driver'; exit 9", 0),
    ],
)
def test_nvidia_smi_decides_without_a_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, found: int
) -> None:
    _nvidia_smi(tmp_path / "bin", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert find_gpus({}, driver=tmp_path / "none") == tuple("01"[:found])


def test_a_machine_without_any_source_has_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_gpus({}, driver=tmp_path / "none") == ()


def test_finding_gpus_loads_no_torch() -> None:
    script = "from runmanager.records.host.gpus import find_gpus; find_gpus()"
    script += "; import sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "False\n"
