"""Tests of the doctor's checks of the machine and of their output."""

import importlib.util
import json
import tempfile
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from runmanager.cli import machine_checks as health
from runmanager.cli.commands.doctor import show, show_json
from runmanager.cli.machine_checks import Check, Level


@pytest.mark.parametrize(
    ("version", "level"), [((3, 10), Level.ERROR), ((3, 11), Level.OK), ((3, 14), Level.OK), ((3, 15), Level.ERROR)]
)
def test_python(version: tuple[int, int], level: Level) -> None:
    assert health.python_check(version).level is level


def write_distribution(folder: Path, name: str, version: str, *requires: str) -> None:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {r}" for r in requires),
    ]
    (info / "METADATA").write_text("\n".join(lines) + "\n")


def test_missing_and_unsupported_requirements_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_distribution(
        tmp_path, "torch_runmanager", "0.1.0", "torch>=99", "surely-not-there", "pytest", 'mypy>99 ; extra == "dev"'
    )
    monkeypatch.syspath_prepend(tmp_path)
    check = health.requirements_check()
    assert check.level is Level.ERROR
    assert check.finding.startswith("torch must be >=99, got ")
    assert check.finding.endswith("; surely-not-there is missing")


def test_a_package_that_hides_hydras_plugins_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert health.plugins_check(importlib.util.find_spec("hydra_plugins")).level is Level.OK
    hiding = tmp_path / "hydra_plugins" / "__init__.py"
    hiding.parent.mkdir()
    assert health.plugins_check(PathFinder.find_spec("hydra_plugins", [str(tmp_path)])).level is Level.WARNING
    hiding.touch()
    check = health.plugins_check(PathFinder.find_spec("hydra_plugins", [str(tmp_path)]))
    assert check.level is Level.WARNING and str(hiding) in check.cure


def test_satisfied_requirements_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_distribution(tmp_path, "torch_runmanager", "0.1.0", "torch>=2.9", "pytest")
    monkeypatch.syspath_prepend(tmp_path)
    assert health.requirements_check() == Check(
        "libraries", Level.OK, "all 2 required libraries are installed in supported versions"
    )


@pytest.mark.parametrize(
    ("quota", "threads", "level", "cure"),
    [
        (None, "", Level.OK, ""),
        (1.5, "", Level.WARNING, "set OMP_NUM_THREADS=1:"),
        (None, "64", Level.WARNING, "set OMP_NUM_THREADS=4 or fewer"),
        (None, "4", Level.OK, ""),
    ],
)
def test_cores(quota: float | None, threads: str, level: Level, cure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    monkeypatch.setattr(health, "usable_cores", lambda: 4)
    monkeypatch.setattr(health, "cpu_quota", lambda: quota)
    check = health.cores_check()
    assert check.level is level
    assert check.cure.startswith(cure)


def test_high_load_is_a_warning() -> None:
    assert health.load_check(1.9, 2).level is Level.OK
    assert health.load_check(2.1, 2).level is Level.WARNING


@pytest.mark.parametrize(("needed", "level"), [(True, Level.ERROR), (False, Level.WARNING)])
def test_an_unwritable_folder_is_reported(needed: bool, level: Level, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert health.folder_check("outputs", tmp_path / "new" / "deep", needed=needed).level is Level.OK
    assert not (tmp_path / "new").exists()
    check = health.folder_check("outputs", tmp_path / "file" / "deep", needed=needed)
    assert check.level is level
    assert "cannot be written" in check.finding


@pytest.mark.parametrize(("free", "level"), [(5 << 30, Level.OK), (500 << 20, Level.WARNING), (5 << 20, Level.ERROR)])
def test_space(free: int, level: Level, tmp_path: Path) -> None:
    assert health.space_check(tmp_path, free).level is level


def test_a_missing_data_folder_is_a_warning(tmp_path: Path) -> None:
    assert health.data_check(None).level is Level.OK
    assert health.data_check(str(tmp_path)).level is Level.OK
    assert health.data_check(str(tmp_path / "none")).level is Level.WARNING


def test_checks_are_printed_with_remedies_and_only_errors_set_the_status(capsys: pytest.CaptureFixture[str]) -> None:
    fine, doubtful = Check("one", Level.OK, "fine"), Check("two", Level.WARNING, "doubtful", "look")
    assert show([fine, doubtful]) == 0
    assert show([fine, doubtful, Check("three", Level.ERROR, "broken", "mend it")]) == 1
    assert capsys.readouterr().out.splitlines()[5:] == [
        "ok       one          fine",
        "warning  two          doubtful",
        "                      cure: look",
        "error    three        broken",
        "                      cure: mend it",
        "",
        "3 checks: 1 error, 1 warning.",
    ]


def test_what_is_said_of_a_check_is_wrapped_in_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    show([Check("one", Level.WARNING, "long " * 20, "mend it")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(" one          " + ("long " * 11).rstrip())
    assert lines[1:3] == [" " * 22 + ("long " * 9).rstrip(), " " * 22 + "cure: mend it"]


def test_doctor_runs_every_check(command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = command("doctor", "--output-root", "elsewhere")
    assert done.status == 0, done.out
    for subject in ("python", "libraries", "cpu", "load", "outputs", "disk", "cache", "data", "torch", "torchvision"):
        assert f" {subject} " in done.out
    assert str(tmp_path / "elsewhere") in done.out
    assert not (tmp_path / "elsewhere").exists()


def test_checks_are_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_json([Check("one", Level.OK, "fine"), Check("two", Level.ERROR, "broken", "mend it")]) == 1
    one, two = json.loads(capsys.readouterr().out)
    assert one == {"subject": "one", "level": "ok", "finding": "fine", "cure": ""}
    assert two == {"subject": "two", "level": "error", "finding": "broken", "cure": "mend it"}


@pytest.mark.parametrize(("given", "level"), [("there", Level.OK), ("nowhere", Level.WARNING)])
def test_the_folder_for_temporary_files_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, level: Level
) -> None:
    (tmp_path / "there").mkdir()
    folder = str(tmp_path / given)
    monkeypatch.setenv("TMPDIR", folder)
    monkeypatch.setattr(tempfile, "tempdir", None)  # so that it is looked up again
    check = health.temporary_check(folder)
    assert check.level is level
    assert folder in check.finding
    assert ("set TMPDIR" in check.cure) == (level is Level.WARNING)
