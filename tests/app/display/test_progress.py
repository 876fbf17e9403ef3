"""Tests of a command's progress display: plain lines in a pipe, a live table in a terminal."""

import io
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyte
import pytest
from rich.console import Console
from rich.text import Text
from screens import Screen

from runmanager.app.display.output import ConsoleOutput
from runmanager.app.display.progress import RunDisplay
from runmanager.app.follow.sweep_feed import Began, Ended, Said
from runmanager.app.follow.sweep_state import CellState
from runmanager.records.files.paths import RunPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status

from ...processes import discard

Begin = Callable[..., Screen]

APPLICATION = ("-m", "runmanager")
COMMAND = ("-c", "from runmanager.cli.main import main; main()")


def test_a_pipe_gets_a_plain_line_when_a_run_starts_and_when_it_ends(grid: Any) -> None:
    lines = grid.done.out.splitlines()
    assert lines[0] == "4 runs to do, 4 cells skipped (no cuda here), in outputs/grid"
    assert lines[1] == "[1/4] batch_size=16,num_workers=0,device=cpu started"
    assert re.match(
        r"✓ 1/4  batch_size=16,num_workers=0,device=cpu  finished  loss \d.* acc 0\.\d+ .*/s  [\d.]+ s$", lines[2]
    )
    assert lines[3] == "[2/4] batch_size=16,num_workers=1,device=cpu started"
    assert len([line for line in lines if line.endswith(" started")]) == 4
    assert lines[-1] == "8 runs: 4 finished, 4 skipped."  # the answers come last
    assert not [line for line in lines[:-1] if "cuda" in line and "skipped" in line and line.startswith("-")]
    assert "\x1b" not in grid.done.out
    assert "\r" not in grid.done.out


@pytest.fixture
def begin(tmp_path: Path, environment: Callable[..., dict[str, str]]) -> Iterator[Begin]:
    """Start a command in a terminal; it is ended with the test."""
    screens: list[Screen] = []

    def begun(
        *words: str,
        columns: int = 80,
        rows: int = 24,
        term: str = "xterm-256color",
        program: Sequence[str] = APPLICATION,
        **variables: str,
    ) -> Screen:
        command = [sys.executable, *program, *words]
        size = {"columns": columns, "rows": rows}
        screens.append(Screen(command, folder=tmp_path, environment=environment(**variables), term=term, **size))
        return screens[-1]

    yield begun
    for screen in screens:
        discard(screen.process)
        screen.close()


@pytest.fixture
def halted_grid(tmp_path: Path, own_module: Path, tiny: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments of a grid of two cells that wait in their second epoch and then finish, and two that fail."""
    (tmp_path / "gate").touch()
    own = ("model=custom", "model._target_=own.Net", "+model.way=fine,raises", "seed=0,1")
    return ("-m", *tiny, *own, "name=shown", "--order", "grid")


def row_of(screen: Screen, label: str) -> str:
    return next((line for line in screen.lines if label in line), "")


def rows_that_stay(screen: Screen) -> list[str]:
    return sorted(line for line in screen.shown.splitlines() if line.startswith(("✓", "✗")))


WIDE = ["run", "state", "epoch", "loss", "acc", "val_loss", "val_acc", "samples/s", "took", "left"]
NARROW = ["run", "state", "epoch", "loss", "val_acc", "time"]


def test_running_rows_are_redrawn_and_ended_rows_stay_as_in_other_terminals_that_watch(
    begin: Begin, halted_grid: tuple[str, ...], tmp_path: Path
) -> None:
    screen = begin(*halted_grid)
    screen.wait_for(
        lambda now: " 1/2 " in row_of(now, "way=fine,seed=0") and row_of(now, "so far"),
        "the first run's second epoch, and all that stands below it",
    )
    running = row_of(screen, "way=fine,seed=0")
    assert running.startswith("> ")
    assert "━━━━━╌╌╌╌╌" in running
    assert heading_of(screen, running) == NARROW
    footer = r"1 running · 3 to come · [\d.]+s so far( · at least \S+ left)?$"  # of way=raises nothing is known
    assert re.search(footer, screen.lines[screen.lines.index(running) + 1])
    watcher, wide = (
        begin("watch", "shown", program=COMMAND, columns=columns, rows=rows) for columns, rows in ((80, 24), (200, 50))
    )
    for each, heading in ((watcher, NARROW), (wide, WIDE)):
        each.wait_for(lambda now: " 1/2 " in row_of(now, "way=fine,seed=0"), "the same row")
        assert heading_of(each, row_of(each, "way=fine,seed=0")) == heading
    (tmp_path / "gate").unlink()
    for each in (screen, watcher, wide):
        assert each.end() == 1, each.shown
        assert re.search(r"^✓ .*way=fine,seed=0 +finished .* 2/2 ", each.shown, re.MULTILINE)
        assert re.search(r"^✗ .*way=raises,seed=1 +failed", each.shown, re.MULTILINE)
        assert re.search(r"^✓ .*way=fine,seed=1 +finished", each.shown, re.MULTILINE)
        assert "╌" not in each.shown  # the live region is removed
    assert rows_that_stay(watcher) == rows_that_stay(screen)
    # Once below the first failed row, and once at the end of its error; the next row has only the reason.
    assert len(re.findall(r"^  ValueError: this model wants no data$", screen.shown, re.MULTILINE)) == 2
    assert screen.shown.count("the same error as above") == 1
    assert len(re.findall(r"^ +run +state", screen.shown, re.MULTILINE)) == 1


def heading_of(screen: Screen, row: str) -> list[str]:
    return screen.lines[screen.lines.index(row) - 1].split()


def test_the_live_table_works_in_ascii(begin: Begin, halted_grid: tuple[str, ...], tmp_path: Path) -> None:
    screen = begin(*halted_grid, columns=60, PYTHONIOENCODING="ascii", LC_ALL="C")
    screen.wait_for(
        lambda now: " 1/2 " in row_of(now, "way=fine,seed=0") and row_of(now, "so far"),
        "the first run's second epoch, and all that stands below it",
    )
    running = row_of(screen, "way=fine,seed=0")
    assert "=====-----" in running
    footer = r"1 running \| 3 to come \| [\d.]+s so far( \| at least \S+ left)?$"
    assert re.search(footer, screen.lines[screen.lines.index(running) + 1])
    (tmp_path / "gate").unlink()
    assert screen.end() == 1, screen.shown
    assert re.search(r"^\+ .*way=fine,seed=0 +finished +2/2", screen.shown, re.MULTILINE)
    assert re.search(r"^x .*way=raises,seed=1 +failed", screen.shown, re.MULTILINE)
    assert screen.shown.isascii() and "=====" not in screen.shown  # the live region is removed


def test_the_time_left_is_estimated_from_the_first_run_and_then_from_earlier_ones(
    begin: Begin, tmp_path: Path, own_module: Path, tiny: tuple[str, ...]
) -> None:
    gates = [tmp_path / name for name in ("0.1", "0.2")]  # one for each run, closed before the run reaches it
    for gate in gates:
        gate.touch()
    with own_module.open("a") as module:  # its gate is a setting that changes no run's time
        module.write("\n\nclass Gated(Net):\n    def __init__(self, in_shape, num_classes, dropout):\n")
        module.write("        super().__init__(in_shape, num_classes, gate=str(dropout))\n")
    own = ("model=custom", "model._target_=own.Gated", "+model.dropout=0.1,0.2,0.3")
    screen = begin("-m", *tiny, *own, "name=timed", "--order", "grid")
    screen.wait_for(lambda now: " 1/2 " in row_of(now, "dropout=0.1"), "the first run's second epoch")
    screen.wait_for(
        lambda now: re.search(r"^ *1 running · 2 to come .* about .* left", now.shown, re.M), "the time left"
    )
    gates[0].unlink()
    screen.wait_for(lambda now: re.search(r"✓ .*dropout=0\.1 +finished", now.shown), "the first run's end")
    screen.wait_for(lambda now: re.search(r"1 finished .* 1 running .* about .* left", now.shown), "the time left")
    gates[1].unlink()
    assert screen.end() == 0, screen.shown


def test_after_ctrl_c_no_run_is_to_come_and_the_time_left_is_that_of_the_epoch(
    begin: Begin, halted_grid: tuple[str, ...], tmp_path: Path
) -> None:
    screen = begin(*halted_grid, "epochs=1000")
    screen.wait_for(lambda now: re.search(r"1 running · 3 to come .* left", now.shown), "the time left of the run")
    screen.process.send_signal(signal.SIGINT)
    screen.wait_for_text("Stopping after this epoch")
    screen.wait_for(
        lambda now: re.search(r"^ *1 running · [\d.]+s so far · about 0\.0s left$", now.shown, re.M),
        "the end of an epoch that takes longer than the one before",
    )
    (tmp_path / "gate").unlink()
    assert screen.end() == 130, screen.shown


PRINTS = """
import sys, time
from pathlib import Path

lr = sys.argv[1].partition("=")[2]
print(f"loss 5 score {10 * float(lr):g}", flush=True)
while Path("gate").exists():
    time.sleep(0.01)  # between two polls
if lr == "0.3":
    sys.exit(3)
"""
SCALARS = ("--scalar", r"loss=loss (\S+)", "--scalar", r"score=score (\S+)", "--metric", "score", "--better", "max")


def test_runs_without_epochs_show_what_they_printed_last(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PRINTS)
    (tmp_path / "gate").touch()
    words = ("sweep", "--name", "printed", *SCALARS, "train.py", "lr=0.1,0.2,0.3")
    driver = begin(*words, program=COMMAND, columns=70)
    driver.wait_for(lambda now: row_of(now, "lr=0.1").startswith(">") and " 1 " in row_of(now, "lr=0.1"), "its score")
    heading = driver.lines[driver.lines.index(row_of(driver, "lr=0.1")) - 1].split()
    assert heading == ["run", "state", "epoch", "score", "loss", "took", "left"]
    assert re.search(r"^> lr=0.1 +running +1 +5 +[\d.]+s$", row_of(driver, "lr=0.1"))
    watcher = begin("watch", "printed", program=COMMAND)
    watcher.wait_for(lambda now: re.search(r"running +1 +5 ", row_of(now, "lr=0.1")), "the same row")
    (tmp_path / "gate").unlink()
    assert driver.end() == watcher.end() == 1
    assert re.search(r"^✓ lr=0.2 +finished +2 +5 +[\d.]+s$", driver.shown, re.MULTILINE)
    assert re.search(r"^✗ lr=0.3 +failed +3 +5 +[\d.]+s$", driver.shown, re.MULTILINE)
    assert "The best score is 2.000 with lr=0.2." in driver.shown
    plain = begin(*words, program=COMMAND, term="dumb", columns=200)
    assert plain.end() == 1
    assert re.search(r"^\[1/1\] .* started$", plain.shown, re.MULTILINE)  # such a terminal cannot move its cursor
    assert re.search(r"^✗ 1/1  lr=0.3  failed \(exit\)  score 3.000  loss 5.000 ", plain.shown, re.MULTILINE)
    assert b"\x1b" not in plain.sent


def test_a_sweep_without_any_metric_says_how_to_get_one(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('fitness 5.5, 3.1 it/s')")
    screen = begin("sweep", "train.py", "lr=0.1,0.2", program=COMMAND, columns=200)
    assert screen.end() == 0
    said = r"No metric was found: --scalar NAME=REGEX reads one that the script prints, as fitness 5.5 (--scalar '"
    shown = screen.shown
    assert shown.index(f"lr=0.1 has finished. {said}") < re.search(r"✓ .*lr=0.2 ", shown).start()
    assert shown.count(said) == 2, "where it can be mended soon, and at the end"
    single = begin("run", "train.py", "lr=0.3", program=COMMAND, columns=200)
    assert single.end() == 0
    assert single.shown.count(said) == 1
    (sweep,) = (each.name for each in (tmp_path / "outputs").iterdir() if len(list((each / "runs").iterdir())) == 2)
    compared = begin("compare", sweep, program=COMMAND, columns=200)
    assert compared.end() == 0
    assert "could not be compared: no epochs were recorded." in compared.shown and said in compared.shown
    best = begin("best", sweep, program=COMMAND, columns=400)
    assert best.end() == 2
    assert "error: The best must be by a metric that runs recorded, got none; there is run_seconds" in best.shown
    assert said in best.shown


@pytest.mark.parametrize("term", ["xterm-256color", "dumb"], ids=["live table", "plain lines"])
def test_the_first_run_that_finishes_says_that_it_lacks_the_requested_metric(
    term: str, begin: Begin, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('score 5')")
    options = ("--scalar", r"score=score (\S+)", "--scalar", r"f1=f1 (\S+)", "--metric", "scroe", "--better", "max")
    screen = begin("sweep", *options, "train.py", "lr=0.1,0.2", program=COMMAND, columns=200, term=term)
    assert screen.end() == 0
    shown = " ".join(screen.shown.split())  # a dumb terminal is 80 columns wide
    said = (
        "lr=0.1 has finished without the metric scroe, by which cells are ranked: it has score; did you mean 'score'?"
    )
    assert shown.count("without the metric") == 1
    assert shown.index(said) < re.search(r"✓ (2/2 )?lr=0.2 ", shown).start()
    assert f"No finished run has the metric scroe, by which cells were to be ranked: they have {said[-28:]}" in shown
    known = begin("sweep", *options[:4], "--metric", "score", "--better", "max", "train.py", "lr=0.1", program=COMMAND)
    assert known.end() == 0 and "metric" not in known.shown


def test_rows_fit_into_a_terminal_that_is_made_narrower_and_no_color_is_respected(
    begin: Begin, halted_grid: tuple[str, ...], tmp_path: Path
) -> None:
    screen = begin(*halted_grid, columns=120, NO_COLOR="1")
    screen.wait_for(lambda now: " 1/2 " in row_of(now, "way=fine,seed=0"), "the first run's second epoch")
    screen.resize(60, 24)
    screen.wait_for(
        lambda now: any(re.search(r"^  run +state +epoch +time$", line) for line in now.lines), "fewer columns"
    )
    (tmp_path / "gate").unlink()
    assert screen.end() == 1
    kept = [line for line in screen.shown.splitlines() if line.startswith(("✓", "✗"))]
    assert len(kept) == 4
    assert all(re.search(r"way=\w+,seed=\d +(finished +2/2|failed +exception)", line) for line in kept)
    assert not re.search(rb"\x1b\[[0-9;]*3[0-7]m", screen.sent)


def test_quiet_prints_only_failures(begin: Begin, halted_grid: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "gate").unlink()
    screen = begin(*halted_grid, "--quiet")
    assert screen.end() == 1
    assert "✓" not in screen.shown
    assert "ValueError: this model wants no data" in screen.shown


def test_a_large_sweep_needs_confirmation(begin: Begin, tmp_path: Path, tiny: tuple[str, ...]) -> None:
    screen = begin("-m", *tiny, "seed=range(200)", "name=many")
    screen.wait_for_text("Run up to 200 cells? [y/N]")
    screen.type("n\n")
    assert screen.end() == 2
    assert "error: Nothing was run." in screen.shown
    assert not (tmp_path / "outputs").exists()


def test_a_long_error_line_is_shortened(tmp_path: Path) -> None:
    run = RunPaths(tmp_path)
    run.error.write_text(f"Traceback\n  raise\nValueError: {1_000_000 * 'x'}")
    console = Console(file=io.StringIO(), width=80)
    RunDisplay(ConsoleOutput(console)).show([Said("again", retried=run)])
    said = console.file.getvalue()
    assert "ValueError: xxx" in said
    assert "x…\n" in said
    assert len(said) < 3000
    assert "the whole error: " in said


def test_a_command_to_be_copied_is_not_broken_in_a_terminal() -> None:
    console = Console(file=io.StringIO(), width=40, force_terminal=True)
    command = "runmanager sweep model=cnn lr=0.1,0.01 name=2026-11-23_16-04-44"
    RunDisplay(ConsoleOutput(console)).say_commands("Interrupted. To resume:", command)
    assert f"  {command}\n" in console.file.getvalue()


class Halting(Console):
    """A console that calls `halt` once, after it has measured the screen and before it prints a line."""

    halt: Callable[[], None] | None = None

    def render(self, renderable: Any, options: Any = None) -> Any:
        if self.halt is not None and isinstance(renderable, Text) and renderable.plain == "a line":
            halt, self.halt = self.halt, None
            halt()
        return super().render(renderable, options)


class Watching(io.StringIO):
    """A terminal that keeps each screen that was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.screen = pyte.Screen(80, 24)
        self.shown: list[list[str]] = []

    def write(self, text: str) -> int:
        pyte.Stream(self.screen).feed(text.replace("\n", "\r\n"))
        self.shown.append([line.rstrip() for line in self.screen.display if line.strip()])
        return len(text)


def cell_of(run: RunPaths, status: Status = Status.RUNNING) -> CellState:
    return CellState(run, RunRecord(name=run.name, signature="s", status=status, config={}, epochs_planned=2))


def test_a_run_that_has_ended_never_stands_beside_its_own_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Watching()
    console = Console(file=terminal, width=80, height=24, force_terminal=True)
    paths = [RunPaths(tmp_path / f"lr={rate}-0000000{rate}") for rate in (1, 2)]
    output = ConsoleOutput(console)
    display = RunDisplay(output, labels=[each.name for each in paths])
    with display.redrawn():
        for each in paths:
            display.show([Began(cell_of(each))])
        output.refresh()
        for each in paths:
            display.show([Ended(cell_of(each, Status.FINISHED))])
    for rate in (1, 2):
        rows = [[line for line in lines if f"lr={rate}" in line] for lines in terminal.shown]
        assert max(map(len, rows)) == 1 and any("finished" in line for lines in rows for line in lines)
    assert all(sum("state" in line for line in lines) <= 1 for lines in terminal.shown), "one heading"


def test_the_table_is_not_redrawn_while_a_line_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    console = Halting(file=io.StringIO(), width=80, height=24, force_terminal=True)
    output = ConsoleOutput(console)
    display = RunDisplay(output, labels=["lr=0.1", "lr=0.2"])

    def redraw_unless_paused() -> None:
        lock: Any = output.paused()
        if lock.acquire(blocking=False):  # the redrawing thread would wait
            output.refresh()
            lock.release()

    def grow() -> None:
        display.show([Began(cell_of(RunPaths(tmp_path / "lr=0.2-00000002")))])
        other = threading.Thread(target=redraw_unless_paused)
        other.start()
        other.join(60)

    with display.redrawn():
        display.show([Began(cell_of(RunPaths(tmp_path / "lr=0.1-00000001")))])
        output.refresh()
        console.halt = grow
        display.say("a line")
        output.refresh()
        screen = pyte.Screen(80, 24)
        pyte.Stream(screen).feed(console.file.getvalue().replace("\n", "\r\n"))
    assert console.halt is None
    lines = [line.split()[:2] for line in screen.display if line.strip()]
    assert lines == [["a", "line"], ["run", "state"], [">", "lr=0.1"], [">", "lr=0.2"], ["2", "running"]]
