"""Tests of the application's flags, its help, and its driver process."""

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runmanager.app.request.sweep_request import Kind, options


def test_dry_run_lists_the_cells_and_writes_nothing(
    command: Callable[..., Any], tmp_path: Path, tiny: tuple[str, ...]
) -> None:
    done = command("-m", *tiny, "lr=0.1,0.2", "device=cpu,cuda", "name=plan", "--dry-run")
    assert done.status == 0
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0] == ["run", "plan", "why"]
    planned = {"cpu": ["start", "new"], "cuda": ["skip", "no", "cuda", "here"]}
    cells = [[f"device={device},lr={lr}", *said] for device, said in planned.items() for lr in (0.1, 0.2)]
    assert [[line[0].rpartition("-")[0], *line[1:]] for line in lines[1:5]] == cells
    assert "4 cells: 2 start, 2 skip" in done.out
    assert "Where: outputs/plan/runs" in done.out
    assert "Speeds cannot be compared along lr: 5 measured epochs a side are needed" in " ".join(done.out.split())
    assert list(tmp_path.iterdir()) == []


def test_dry_run_considers_stored_runs(grid: Any, rerun: Callable[..., Any]) -> None:
    before = {path: path.stat().st_mtime_ns for path in grid.folder.rglob("*")}
    done = rerun(grid, "lr=0.01,0.02", "--dry-run")
    assert done.status == 0
    assert "16 cells: 4 keep, 8 skip, 4 start\n" in done.out
    assert "no cuda here" in done.out
    assert "About " in done.out
    assert {path: path.stat().st_mtime_ns for path in grid.folder.rglob("*")} == before


def test_dry_run_rejects_what_a_run_would(command: Callable[..., Any]) -> None:
    assert command("lr=0", "--dry-run").status == 2


def test_quiet_prints_nothing_for_a_successful_sweep(
    command: Callable[..., Any], sweep: Callable[[str], Any], tiny: tuple[str, ...]
) -> None:
    done = command("-m", *tiny, "lr=0.1", "device=cpu,cuda", "name=quiet", "--quiet")
    assert (done.status, done.out, done.err) == (0, "", "")
    assert sweep("quiet").paths.report.exists()


@pytest.mark.parametrize("flag", ["--dry-run", "--debug", "--quiet", "--yes"])
def test_our_flags_are_removed_before_hydra_parses_the_rest(command: Callable[..., Any], flag: str) -> None:
    plain = command("--cfg", "job", "lr=0.125")
    flagged = command(flag, "--cfg", "job", "lr=0.125")
    assert plain.status == flagged.status == 0
    assert plain.out == flagged.out
    assert "\nlr: 0.125\n" in f"\n{plain.out}"
    assert "\nhydra:" not in plain.out


def test_help_lists_every_group(command: Callable[..., Any]) -> None:
    done = command("--help")
    assert done.status == 0
    assert done.out.startswith("Run every combination of the settings")
    assert "model: cnn, custom, logistic, mlp, mlp_tower, torchvision\n" in done.out
    for said in ("--dry-run", "--quiet", "--yes", "--debug", "--hydra-help", "batch_size: 1000"):
        assert said in done.out
    assert "schema_" not in done.out


def test_version_prints_hydras_version(command: Callable[..., Any]) -> None:
    """`python -m runmanager` takes Hydra's flags; `runmanager --version` prints our own."""
    done = command("--version")
    assert done.status == 0
    assert done.out.startswith("Hydra 1.")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["--quite"], ["did you mean '--quiet'?"]),
        (["--dryrun", "lr=0.1"], ["did you mean '--dry-run'?"]),
        (["--point", "points.yaml", "lr=0.1"], ["did you mean '--points'?"]),
        (["--learning-rate", "0.1"], ["a setting is written lr=0.1."]),
        (["--nmae", "first"], ["did you mean '--name'?"]),
        (["--nothing-like-it", "7"], ["a setting is written nothing_like_it=7."]),
        (["--lr=0.1", "--epochs"], ["a setting is written lr=0.1.", "a setting is written epochs=…."]),
    ],
)
def test_an_unknown_flag_is_rejected_with_what_was_meant(
    command: Callable[..., Any], words: list[str], meant: list[str]
) -> None:
    done = command(*words)
    assert done.status == 2
    lines = done.err.splitlines()
    assert [line.partition("; ")[2] for line in lines] == meant
    assert all(" must be an option of runmanager, got an unknown one; " in line for line in lines)


@pytest.mark.parametrize("plugin", ["launcher", "sweeper"])
def test_a_plugin_given_as_a_setting_is_rejected_with_its_group(command: Callable[..., Any], plugin: str) -> None:
    done = command("-m", "lr=0.1", f"hydra.{plugin}=other")
    message = f"`hydra.{plugin}` must be chosen as a group, got `hydra.{plugin}=other`; write hydra/{plugin}=other."
    assert (done.status, done.err) == (2, f"error: {message}\n")


def test_each_option_may_be_written_as_a_setting_too(
    command: Callable[..., Any], tiny: tuple[str, ...], tmp_path: Path
) -> None:
    """Every spelling of before keeps working; both at once must agree."""
    given = {
        "--workers 2": "hydra.launcher.workers=2",
        "--gpus=0,1": "hydra.launcher.gpus=[0,1]",
        "--name x": "name=x",
        "--resume never": "resume=never",
        "--output-root=elsewhere": "output_root=elsewhere",
        "--exclude lr>0.5": "hydra.sweeper.exclude=lr>0.5",
    }
    for option, setting in given.items():
        words = option.split(" ")
        plans = [command("-m", *tiny, "lr=0.1,0.2", "--dry-run", *each) for each in (words, [setting])]
        assert plans[0].status == 0 and plans[0].out == plans[1].out, option
        assert command("-m", *tiny, "lr=0.1,0.2", "--dry-run", *words, setting).status == 0, option
        other = setting.partition("=")[0] + "=3"
        done = command("-m", *tiny, "lr=0.1,0.2", "--dry-run", *words, other)
        flag = option.replace("=", " ").split(" ")[0]
        said = f"`{flag}` must be given once, got it and `{other}`; leave out one of the two."
        assert (done.status, done.err) == (2, f"error: {said}\n")


def test_what_only_other_programs_take_is_refused_with_a_way_out(command: Callable[..., Any]) -> None:
    names = [each for each in options().values() if Kind.JOB not in each.takes]
    done = command(*(word for each in names for word in ([each.flag] if each.default is False else [each.flag, "x"])))
    lines = done.err.splitlines()
    assert done.status == 2 and len(lines) >= len(names)
    assert all("must be left out for the built-in job, got it; " in line for line in lines[: len(names)])
    assert "write device=cuda." in command("--device", "cuda").err


DRIVER = """
import ctypes
import sys
sys.path = [entry for entry in sys.path if entry]  # the path of a console script lacks the current folder
from runmanager.app.hydra_main import main
status = main(sys.argv[1:])
dies_with_parent = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(dies_with_parent))  # PR_GET_PDEATHSIG
print("tied to its parent:", dies_with_parent.value)
print("heavy:", sorted({"torch", "torchvision", "tensorboard", "pandas", "sklearn"} & set(sys.modules)))
sys.exit(status)
"""


def driver(folder: Path, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", DRIVER, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_driver_does_not_import_torch(
    environment: Callable[..., dict[str, str]], own_module: Path, tiny: tuple[str, ...]
) -> None:
    """Custom modules are also found in the current folder, which the path of a console script lacks."""
    own = ("model=custom", "model._target_=own.Net")
    done = driver(own_module.parent, environment(), *tiny, *own, "name=one", "--quiet")
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()[-1]
    assert "torch" not in said


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a process to its parent")
def test_the_driver_outlives_its_parent(environment: Callable[..., dict[str, str]], tmp_path: Path) -> None:
    """Only the driver's children are tied to it: a shell may exit and leave it running."""
    done = driver(tmp_path, environment(RUNMANAGER_PRELOAD="torch"), "--dry-run")
    assert done.stdout.splitlines()[-2:] == ["tied to its parent: 0", "heavy: []"]


@pytest.mark.parametrize("form", ["{option}={path}", "{option} {path}"])
def test_experimental_rerun_is_rejected(command: Callable[..., Any], tmp_path: Path, form: str) -> None:
    class Touching:
        def __reduce__(self) -> tuple[Any, ...]:
            return (tmp_path / "ran").touch, ()

    stored = tmp_path / "config.pickle"
    stored.write_bytes(pickle.dumps(Touching()))
    done = command(*form.format(option="--experimental-rerun", path=stored).split())
    assert done.status == 2
    (line,) = done.faults
    assert "`--experimental-rerun` must be left out" in line
    assert "runmanager reproduce RUN" in line
    assert not (tmp_path / "ran").exists()


def test_files_named_as_standard_modules_take_no_place_in_libraries(
    start: Callable[..., Any], finish: Callable[..., Any], tmp_path: Path, tiny: tuple[str, ...]
) -> None:
    for name in ("random", "logging", "queue"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported in place of the standard one')\n")
    (tmp_path / "mine.py").write_text(
        "from torch import nn\nNet = lambda: nn.Sequential(nn.Flatten(), nn.LazyLinear(10))\n"
    )
    own = ("model=custom", "model._target_=mine.Net")
    done = finish(start(*(word for word in tiny if word != "model=logistic"), *own, "epochs=1"))
    assert done.status == 0, done.err


def test_options_of_hydra_stand_anywhere(command, tiny, tmp_path):
    """Hydra itself takes no setting behind an option that other settings precede."""
    done = command("-m", *tiny, "--config-dir", str(tmp_path), "lr=0.25", "--dry-run", "name=behind")
    assert done.status == 0, done.err
    assert "1 cell: 1 start" in done.out and "outputs/behind" in done.out
