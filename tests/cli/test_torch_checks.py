"""Tests of the doctor's checks of PyTorch: builds that do not match, devices that do not work."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from runmanager.cli import torch_checks as torch_checks
from runmanager.cli.machine_checks import Level

NO_DRIVER = Path("/no/such/driver")


def write_module(folder: Path, name: str, code: str) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(code)


def test_torchvision_from_another_index_is_an_error_with_a_remedy(
    command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_module(tmp_path, "torchvision", "raise RuntimeError('operator torchvision::nms does not exist')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    done = command("doctor")
    assert done.status == 1
    lines = done.out.splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.startswith("error")]
    assert f"does not match torch {torch.__version__}: operator torchvision::nms does not exist" in lines[at]
    assert "from one index: pip install --force-reinstall torch torchvision" in lines[at + 1]


def test_an_import_failure_of_torch_is_one_error(process: Callable, tmp_path: Path) -> None:
    write_module(tmp_path, "torch", "raise ImportError('libcudart.so.13: cannot open shared object file')\n")
    done = process("doctor", before=f"sys.path.insert(0, {str(tmp_path)!r})")
    assert done.status == 1
    assert "cannot be imported: libcudart.so.13: cannot open shared object file" in done.out
    assert " tensorboard " in done.out


def test_a_torch_newer_than_tested_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runmanager.tracking.torch_internals.CHECKED_VERSIONS", ("2.1", "2.3"))
    check = torch_checks.torch_check("2.16.0, built with no CUDA")
    assert check.level is Level.OK
    assert check.finding.startswith("2.16.0, built with no CUDA; torch ")
    assert check.finding.endswith("is newer than 2.3, the newest that was tested")


def test_a_matching_torchvision_is_ok() -> None:
    assert torch_checks.torchvision_check(torch.__version__).level is Level.OK


@pytest.fixture
def with_driver(tmp_path: Path) -> Path:
    driver = tmp_path / "version"
    driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.1\n")
    return driver


def test_a_machine_without_an_accelerator_is_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert torch_checks.no_device_check("13.0", [], driver_file=NO_DRIVER).level is Level.OK


@pytest.mark.parametrize(
    ("cuda", "hidden", "cuda_warnings", "finding", "cure"),
    [
        (None, None, [], "this torch is a CPU build", "from one index"),
        ("13.0", "", [], "CUDA_VISIBLE_DEVICES is ''", "unset CUDA_VISIBLE_DEVICES"),
        ("13.0", None, ["CUDA driver is too old"], "CUDA driver is too old", "older CUDA than 13.0"),
    ],
)
def test_an_unusable_device_is_a_warning(
    cuda: str | None,
    hidden: str | None,
    cuda_warnings: list[str],
    finding: str,
    cure: str,
    with_driver: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    check = torch_checks.no_device_check(cuda, cuda_warnings, driver_file=with_driver)
    assert check.level is Level.WARNING
    assert finding in check.finding
    assert cure in check.cure


@pytest.mark.skipif(torch.accelerator.is_available(), reason="needs a machine without an accelerator")
def test_without_an_accelerator_no_device_is_checked() -> None:
    assert torch_checks.device_checks() == []


def test_tensorboard_and_checksums_are_ok() -> None:
    assert torch_checks.tensorboard_check().level is Level.OK
    assert torch_checks.checksum_check().level is Level.OK
