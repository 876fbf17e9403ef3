"""Standard streams: closed, full or ASCII, a command does its work and keeps its exit status."""

import contextlib
import errno
import io
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import pytest

from runmanager.records.host.standard_streams import repaired_streams, report_lost_output, show_line

ROOT = Path(__file__).resolve().parents[3]
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
RUN = (
    "-m runmanager dataset=fake dataset.size=64 dataset.val_size=32 model=logistic batch_size=32 epochs=2 device=cpu "
    "tensorboard.graph=false name=first"
)
COMMAND = "-c 'import sys; from runmanager.cli.main import run_command; sys.exit(run_command(sys.argv[1:]))'"
NOTHING_MORE = "nothing more is shown; the runs continue.\n"


def shell(folder: Path, line: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line in bash, in this folder; `python` in it is this interpreter."""
    variables_of_tests = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"}
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line.replace("python", shlex.quote(sys.executable))],
        cwd=folder,
        env={**os.environ, **variables_of_tests, **variables},
        capture_output=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that was made with ASCII streams."""
    folder = tmp_path_factory.mktemp("ascii")
    done = shell(folder, f"python {RUN} é=1", **ASCII)
    assert done.returncode == 2 and done.stderr.startswith(b"error: ") and done.stderr.isascii()
    done = shell(folder, f"python {RUN}", **ASCII)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii() and b"\n+ 1/1  run  finished" in done.stdout
    return folder


@pytest.mark.parametrize(
    "words",
    ["table first", "best first", "show first/run", "report first", "watch first", "--help", "export --help", "doctor"],
)
def test_output_of_every_command_fits_ascii(folder: Path, words: str) -> None:
    done = shell(folder, f"python {COMMAND} {words}", **ASCII)
    assert done.returncode == 0, done.stderr
    assert done.stdout and done.stdout.isascii() and b"UnicodeEncodeError" not in done.stderr


def test_longer_spelling_takes_the_place_of_blanks() -> None:
    code = (
        "from runmanager.records.host.standard_streams import repaired_streams\n"
        "with repaired_streams(): print('|lr…   |\\n|0.01  |\\n|…x|\\n✓✗é')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, check=True
    )
    assert done.stdout.decode("ascii").splitlines() == ["|lr... |", "|0.01  |", "|...x|", "+x\\xe9"]


@pytest.mark.parametrize(
    ("redirection", "message"),
    [
        (">&-", "warning: Standard output is closed: " + NOTHING_MORE),
        (">/dev/full", f"warning: Standard output cannot be written (No space left on device): {NOTHING_MORE}"),
        ("| head -1", "warning: Standard output has lost its reader: " + NOTHING_MORE),
        ("<&- >&- 2>&-", ""),
    ],
)
def test_sweep_continues_without_standard_output(tmp_path: Path, redirection: str, message: str) -> None:
    done = shell(tmp_path, f"python {RUN} {redirection}")
    assert (done.returncode, done.stderr.decode()) == (0, message)
    assert "finished" in (tmp_path / "outputs" / "first" / "results.csv").read_text()
    assert (tmp_path / "outputs" / "first" / "report.html").exists()


@pytest.mark.parametrize(
    ("redirection", "status", "message"),
    [
        (">&-", 1, "error: Standard output must take what the command shows, but is closed.\n"),
        (
            ">/dev/full",
            1,
            "error: Standard output must take what the command shows, but cannot be written "
            "(No space left on device).\n",
        ),
        ("| head -1", 0, ""),
        ("2>&-", 0, ""),
    ],
)
@pytest.mark.parametrize("words", ["table first", "--help"])
def test_other_commands_fail_without_standard_output(
    folder: Path, words: str, redirection: str, status: int, message: str
) -> None:
    done = shell(folder, f"python {COMMAND} {words} {redirection}")
    assert (done.returncode, done.stderr.decode()) == (status, message)


def test_streams_are_restored_afterwards(capfd: pytest.CaptureFixture[str]) -> None:
    own = sys.stdout, sys.stderr
    with repaired_streams(), repaired_streams():  # a command that runs another one
        print("within")
    print("afterwards")
    assert (sys.stdout, sys.stderr) == own
    assert capfd.readouterr().out == "within\nafterwards\n"


@pytest.mark.parametrize(
    ("character", "spelling"),
    [
        *(("…", "..."), ("±", "+-"), ("✓", "+"), ("✗", "x"), ("↻", "~"), ("━", "="), ("╸", "="), ("╌", "-")),
        *(("·", "|"), ("µ", "u"), ("³", "^3"), ("é", "\\xe9"), ("€", "\\u20ac")),
    ],
)
def test_spelling_of_each_character(character: str, spelling: str, monkeypatch: pytest.MonkeyPatch) -> None:
    output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", output)
    show_line(f"a{character}b")
    show_line(f"a{character}   b")  # columns stay aligned
    first, second = output.buffer.getvalue().decode().splitlines()
    assert (first, second) == (f"a{spelling}b", f"a{spelling}{' ' * max(1, 4 - len(spelling))}b")
    output.detach()


def test_a_line_for_a_reader_that_has_left_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        show_line("lost")
        with contextlib.suppress(BrokenPipeError):
            output.close()


def without_reader() -> TextIO:
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w")


def full() -> TextIO:
    return Path("/dev/full").open("w")


@pytest.mark.parametrize("text", ["short", "long " * 100_000])
@pytest.mark.parametrize(("opened", "error", "has_failed"), [(without_reader, "EPIPE", False), (full, "ENOSPC", True)])
def test_output_that_is_not_taken_is_reported_once_and_then_dropped(
    opened: Callable[[], TextIO], error: str, has_failed: bool, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[OSError] = []
    with opened() as output:
        before = next_handle()
        monkeypatch.setattr(sys, "stdout", output)
        with repaired_streams(lost.append) as state:
            assert state.lost is None and not state.has_failed
            print(text)
            assert bool(state.lost) is (len(text) > io.DEFAULT_BUFFER_SIZE), "what the buffer does not hold is written"
            for _ in range(2):
                sys.stdout.flush()
                print(text)
            assert state.lost is lost[0] and state.has_failed is has_failed
        assert [errno.errorcode[each.errno or 0] for each in lost] == [error]
        assert os.fstat(output.fileno()).st_rdev == Path(os.devnull).stat().st_rdev, "for what child processes print"
        assert next_handle() == before
        print("dropped", file=output, flush=True)


def next_handle() -> int:
    """Return the number that the next opened file gets: the smallest one that is free."""
    handle = os.open(os.devnull, os.O_RDONLY)
    os.close(handle)
    return handle


def test_streams_that_a_process_lacks_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    with repaired_streams() as state:
        assert sys.stdin.read() == ""
        for stream in (sys.stdout, sys.stderr):
            print("é…", file=stream, flush=True)
        streams = sys.stdin, sys.stdout, sys.stderr
    assert state.lost is None
    for each in streams:
        each.close()


@pytest.mark.parametrize(
    ("number", "of_sweep", "of_others"),
    [
        (errno.EBADF, "is closed: nothing more", "but is closed."),
        (errno.EPIPE, "has lost its reader: nothing more", None),
        (
            errno.ENOSPC,
            "cannot be written (No space left on device): nothing more",
            "but cannot be written (No space left on device).",
        ),
    ],
)
def test_lost_output_is_a_warning_for_a_sweep_and_else_an_error(
    number: int, of_sweep: str, of_others: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    report_lost_output(OSError(number, os.strerror(number)), is_sweep=True)
    text = capsys.readouterr().err
    assert text.startswith(f"warning: Standard output {of_sweep}") and text.endswith("the runs continue.\n")
    report_lost_output(OSError(number, os.strerror(number)), is_sweep=False)
    start = "error: Standard output must take what the command shows, "
    assert capsys.readouterr().err == (f"{start}{of_others}\n" if of_others else "")
