"""Tests of the command line: commands, help, imports, and how errors are reported."""

import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import runmanager
from runmanager.records.files.paths import SweepPaths

from .conftest import process_environment, write_sweep

COMMANDS = (
    *("sweep", "run", "demo", "duel", "table", "compare", "best", "show", "diff", "reproduce", "report", "export"),
    *("watch", "schema", "tensorboard", "doctor", "ls", "tag", "note", "mv", "rm"),
)


def test_help_lists_every_command(command: Callable) -> None:
    done = command("--help")
    assert done.status == 0
    assert all(name in done.out for name in COMMANDS)
    assert command().out == done.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(command: Callable, name: str) -> None:
    done = command(name, "--help")
    assert done.status == 0
    assert f"runmanager {name}" in done.out
    assert done.err == ""


@pytest.mark.parametrize(
    "name",
    [
        *("table", "compare", "best", "show", "diff", "reproduce", "report", "watch", "ls", "tag", "note", "mv", "rm"),
    ],
)
def test_the_example_in_each_command_help_works(
    command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    write_sweep(tmp_path / "outputs" / "first")
    (line,) = [line for line in command(name, "--help").out.splitlines() if "Example: runmanager" in line]
    words = shlex.split(line.partition("Example: runmanager ")[2])
    assert words[0] == name
    done = command(*words)
    assert (done.status, done.err) == (0, "")
    assert done.out


def test_version(command: Callable) -> None:
    assert command("--version").out == f"runmanager {runmanager.__version__}\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tabel", "x"], "No such command 'tabel'. Did you mean 'table'? See runmanager --help."),
        (
            ["table", "x", "--format", "xml"],
            "Invalid value for '--format': 'xml' is not one of 'text', 'csv', 'json', "
            "'markdown', 'latex', 'html'; see runmanager table --help.",
        ),
        (["doctor", "--nosuch"], "No such option: --nosuch; see runmanager doctor --help."),
    ],
)
def test_a_usage_error_is_one_line_with_status_2(command: Callable, words: list[str], expected: str) -> None:
    done = command(*words)
    said = done.err.replace("option '--nosuch'", "option: --nosuch")  # Typer's wording before 0.29
    assert (done.status, done.out, said) == (2, "", f"error: {expected}\n")


def test_where_a_sweep_is_missing_those_there_are_are_named(command: Callable, sweep: SweepPaths) -> None:
    for name, what in (("table", "SWEEP"), ("show", "RUN"), ("tag", "SWEEP|RUN")):
        first = f"error: Missing argument '{what}'; see runmanager {name} --help."
        assert command(name).err == f"{first} There is {sweep.name} in outputs/.\n"
    sweep.root.rename("elsewhere")
    assert command("table").err.endswith(" There is none in outputs/ yet; `runmanager demo` makes one.\n")


@pytest.mark.parametrize(
    "words", [["compare", "x", "--axis", "lr", "--axis", "seed"], ["watch", "x", "--once", "--once"]]
)
def test_a_repeated_option_is_rejected(command: Callable, sweep: SweepPaths, words: list[str]) -> None:
    done = command(*words)
    assert done.status == 2
    if "--axis" in words:
        assert done.err == "error: `--axis` must be given once, got it 2 times; give one value.\n"
    else:  # a repeated flag changes nothing
        assert done.err.startswith("error: 'x' must be a sweep's folder")


def test_a_runmanager_error_is_one_line_with_status_2(command: Callable, sweep: SweepPaths) -> None:
    done = command("table", "nothing")
    assert done.status == 2
    assert done.err.startswith("error: 'nothing' must be a sweep's folder")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("words", [["--debug", "table", "nothing"], ["table", "nothing", "--debug"]])
def test_debug_adds_the_traceback_at_any_position(command: Callable, sweep: SweepPaths, words: list[str]) -> None:
    done = command(*words)
    assert done.status == 2
    assert "Traceback (most recent call last)" in done.err
    assert done.err.splitlines()[-1].startswith("error: 'nothing' must be")


def test_an_unexpected_error_has_no_traceback(
    command: Callable, sweep: SweepPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: SweepPaths) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("runmanager.results.load.loader.read_summary", broken)
    done = command("table", str(sweep.root))
    assert done.status == 1
    assert done.err == "error: unexpected KeyError: 'lost'; the same command with --debug shows where.\n"


@pytest.mark.parametrize("words", [["--version"], ["table", "grid", "--format", "csv"], ["sweep", "--help"]])
def test_the_module_is_the_command(process: Callable, sweep: SweepPaths, words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "runmanager", *words],
        env=process_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    same = process(*words)
    assert (done.returncode, done.stdout) == (same.status, same.out) and done.stdout


def test_windows_is_rejected_in_one_line(command: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    done = command("doctor")
    assert done.status == 2
    assert done.err.startswith("error: Windows is not supported")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("light", "messages"),
    [
        ([["show", "batch_size=100,device=cpu"], ["compare", "grid"]], ("tensorboard", "google.protobuf")),
        ([["table", "--events", "outputs/grid"]], ("tensorboard.backend", "numpy")),  # event files need the messages
    ],
    ids=["records", "event files"],
)
def test_commands_on_stored_sweeps_do_not_import_torch(
    light: Sequence[Sequence[str]], messages: Sequence[str], process: Callable, sweep: SweepPaths
) -> None:
    from runmanager.tracking.tensorboard.event_writer import EventWriter

    EventWriter(sweep.root).close()
    names = ("torch", "hydra", "pandas", "matplotlib", *messages)
    heavy = f"print(*[name for name in {names} if name in sys.modules])"
    done = process("table", "grid", before=_run_all(light), after=heavy)
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[-1] == ""


def test_commands_that_compose_or_draw_do_not_import_torch(process: Callable, sweep: SweepPaths) -> None:
    one, other = "grid/batch_size=100,device=cpu", "grid/batch_size=1000,device=cpu"
    commands = (["best", "grid"], ["reproduce", one], ["diff", one, other], ["table", "grid", "--pivot", "lr:device"])
    folder = sweep.root.parents[1] / "lightning_logs"
    folder.mkdir()
    (folder / "metrics.csv").write_text("epoch,step,val_loss\n0,1,0.5\n")
    commands += (["adopt", str(folder)],)
    code = "print(*[name for name in ('torch', 'tensorboard') if name in sys.modules])"
    done = process("report", "grid", before=_run_all(commands), after=code)
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[-1] == ""


def _run_all(commands: Sequence[Sequence[str]]) -> str:
    """Code that runs these commands, none of which may fail."""
    call = "from runmanager.cli.main import run_command"
    return f"{call}\nfor words in {[list(words) for words in commands]}:\n    assert run_command(words) == 0"


def test_command_help_imports_nothing_slow(process: Callable) -> None:
    code = "print(*[name for name in ('torch', 'hydra', 'pandas', 'matplotlib') if name in sys.modules])"
    done = process("table", "--help", after=code)
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines()[-1] == ""


def test_a_help_that_is_cut_says_nothing_of_runs(tmp_path: Path) -> None:
    program = "from runmanager.cli.main import main; main()"
    done = subprocess.run(
        f"{shlex.join([sys.executable, '-c', program, 'sweep'])} | head -c 1",
        shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
