"""GPUs, found without torch on machines made of files."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from runmanager.records.host import gpus
from runmanager.records.host.gpus import exclusive_gpus, find_gpus, has_cuda, visibility


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


@pytest.fixture
def amd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The kernel's list of a processor and of four AMD GPUs, of which the second has no device file."""
    monkeypatch.setattr(gpus, "_is_for_amd", lambda: True)
    nodes, devices = tmp_path / "nodes", tmp_path / "dev"
    (devices / "dri").mkdir(parents=True)
    for number in (0, 1, 2, 9, 10):
        (nodes / str(number)).mkdir(parents=True)
        simds, minor = (number and 416), 128 + number
        (nodes / str(number) / "properties").write_text(
            f"cpu_cores_count 8\nsimd_count {simds}\nunique_id {number * 11}\ndrm_render_minor {minor}\n"
        )
        if number != 2:
            (devices / "dri" / f"renderD{minor}").touch()
    return {"nodes": nodes, "devices": devices}


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, ("0", "1", "2")),
        ({"HIP_VISIBLE_DEVICES": "2,0"}, ("2", "0")),
        ({"CUDA_VISIBLE_DEVICES": "1,7,0"}, ("1",)),  # there are three
        ({"HIP_VISIBLE_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "1"}, ("2",)),
        ({"HIP_VISIBLE_DEVICES": "", "CUDA_VISIBLE_DEVICES": "1"}, ("1",)),  # as if it was not set
        ({"HIP_VISIBLE_DEVICES": f"GPU-{110:016x}"}, ("2",)),
        ({"HIP_VISIBLE_DEVICES": "-1"}, ()),
        ({"ROCR_VISIBLE_DEVICES": "2,0"}, ("0", "1")),  # whose numbers then begin at 0
        ({"ROCR_VISIBLE_DEVICES": f"GPU-{11:016x},2", "HIP_VISIBLE_DEVICES": "1"}, ("1",)),
        ({"ROCR_VISIBLE_DEVICES": ""}, ()),
    ],
)
def test_amds_gpus_are_those_that_hip_lists(
    amd: dict[str, Path], variables: dict[str, str], found: tuple[str, ...]
) -> None:
    assert find_gpus(variables, driver=amd["nodes"], **amd) == found


def test_amds_gpus_that_a_container_was_not_given_are_left_out(amd: dict[str, Path], tmp_path: Path) -> None:
    properties = amd["nodes"] / "1" / "properties"
    properties.unlink()
    properties.mkdir()  # cannot be read, as root can read any file
    assert find_gpus({}, **amd) == ("0", "1")
    assert find_gpus({"HIP_VISIBLE_DEVICES": "0"}, nodes=tmp_path / "none", devices=tmp_path) == ()


def test_a_process_sees_amds_gpus_by_the_variable_that_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert visibility("0,1") == {"CUDA_VISIBLE_DEVICES": "0,1"} and visibility("") == {"CUDA_VISIBLE_DEVICES": ""}
    monkeypatch.setattr(gpus, "_is_for_amd", lambda: True)
    assert visibility("0,1") == {"CUDA_VISIBLE_DEVICES": "0,1", "HIP_VISIBLE_DEVICES": "0,1"}
    assert visibility("")["HIP_VISIBLE_DEVICES"] == "-1", "an empty one hides none"


@pytest.mark.parametrize(("hip", "is_for_amd"), [("'7.2.53211'", True), ("None", False)])
def test_which_gpus_torch_is_for_is_read_from_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hip: str, is_for_amd: bool
) -> None:
    (tmp_path / "version.py").write_text(f"cuda: Optional[str] = '13.2'\nhip: Optional[str] = {hip}\n")
    monkeypatch.setattr(
        gpus.importlib.util, "find_spec", lambda name: SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    )
    assert gpus._is_for_amd.__wrapped__() is is_for_amd
    monkeypatch.setattr(gpus.importlib.util, "find_spec", lambda name: None)
    assert gpus._is_for_amd.__wrapped__() is False


def test_only_a_gpu_that_was_found_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for found in ((), ("0",)):
        monkeypatch.setattr(gpus, "find_gpus", lambda found=found: found)
        assert has_cuda() is bool(found)


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
