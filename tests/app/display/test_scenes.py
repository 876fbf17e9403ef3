"""Scenes of sweeps: what each command of a scene has shown at its end, as in scenes.md, which hides times."""

import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from screens import Screen

from ...processes import discard, wait_until

PAGE = Path(__file__).with_name("scenes.md")
PROGRAM = """
import os, signal, sys, time
from pathlib import Path

way = sys.argv[1].partition("=")[2]
print("score 5", flush=True)
if way == "fails":
    sys.exit("the data are gone")
if way == "dies" or (way == "dies-once" and not Path("died").exists()):
    Path("died").touch()
    os.kill(os.getpid(), signal.SIGKILL)
if way == "takes-its-cell-along":
    os.kill(os.getppid(), signal.SIGKILL)
if way.startswith("waits"):
    if way == "waits-on":
        signal.signal(signal.SIGTERM, lambda *_: Path("told").touch())
    Path(way).touch()
    while not Path("open").exists():
        time.sleep(0.01)  # between two polls
"""
SCALAR = ("--scalar", r"score=score (\S+)", "--better", "max", "--metric", "score", "--order", "grid")


class Stage:
    """Commands on one sweep, each in a terminal of its own kind."""

    def __init__(self, folder: Path, environment: dict[str, str], term: str) -> None:
        self.folder = folder
        self.screens: list[Screen] = []
        self._environment, self._term = environment, term
        (folder / "train.py").write_text(PROGRAM)

    def command(self, *words: str) -> Screen:
        return self.python("from runmanager.cli.main import main; main()", *words)

    def sweep(self, ways: str, *options: str) -> Screen:
        return self.command("sweep", "--name", "scene", *SCALAR, *options, "train.py", f"way={ways}")

    def python(self, code: str, *words: str) -> Screen:
        screen = Screen(
            [sys.executable, "-c", code, *words],
            folder=self.folder,
            environment=self._environment,
            columns=170,
            rows=60,
            term=self._term,
        )
        self.screens.append(screen)
        return screen

    def wait_until_there(self, name: str) -> None:
        wait_until((self.folder / name).exists, f"the run {name}")

    def open_gate(self) -> None:
        (self.folder / "open").touch()


def cells_end_in_many_ways(stage: Stage) -> None:
    stage.sweep("fine,fails,dies-once,dies,takes-its-cell-along", "--retries", "1").end()


def a_failure_stops_the_sweep(stage: Stage) -> None:
    stage.sweep("fails,fine", "--launcher-option", "on_error=stop").end()


def two_commands_share_it(stage: Stage) -> None:
    first = stage.sweep("waits,fine")
    stage.wait_until_there("waits")
    second = stage.sweep("waits,fine")
    second.wait_for(lambda now: re.search(r"✓ .*fine", now.shown), "the end of the other cell")
    stage.open_gate()
    first.end()
    second.end()


def it_is_interrupted_and_resumed(stage: Stage) -> None:
    driver = stage.sweep("fine,waits,also-fine")
    stage.wait_until_there("waits")
    driver.process.send_signal(signal.SIGINT)
    driver.end()
    stage.open_gate()
    stage.sweep("fine,waits,also-fine").end()


def it_is_stopped_at_once(stage: Stage) -> None:
    driver = stage.sweep("waits-on,fine")
    stage.wait_until_there("waits-on")
    driver.process.send_signal(signal.SIGINT)
    stage.wait_until_there("told")
    driver.process.send_signal(signal.SIGINT)
    driver.end()


def a_cell_takes_too_long(stage: Stage) -> None:
    stage.sweep("waits,fine", "--timeout", "2").end()


def it_is_watched(stage: Stage) -> None:
    driver = stage.sweep("waits,fails,fine")
    stage.wait_until_there("waits")
    watcher = stage.command("watch", "scene")
    watcher.wait_for(lambda now: "way=waits" in now.shown, "the run")
    stage.open_gate()
    driver.end()
    watcher.end()
    stage.command("watch", "scene").end()


def it_is_run_from_python(stage: Stage) -> None:
    words = f"'train.py', 'way=fine,fails', name='scene', scalar=[{SCALAR[1]!r}], order='grid'"
    stage.python(f"from runmanager import run_sweep; run_sweep({words})").end()


PLAIN, LIVE = "dumb", "xterm-256color"
SCENES = [
    *((scene, term) for term in (PLAIN, LIVE) for scene in (cells_end_in_many_ways, two_commands_share_it)),
    *((scene, term) for term in (PLAIN, LIVE) for scene in (it_is_interrupted_and_resumed, it_is_watched)),
    *((a_failure_stops_the_sweep, PLAIN), (it_is_run_from_python, PLAIN), (a_cell_takes_too_long, LIVE)),
    (it_is_stopped_at_once, PLAIN),
]


def heading(scene: Callable[[Stage], None], term: str) -> str:
    return f"{scene.__name__.replace('_', ' ')}, {'plain' if term == PLAIN else 'live'}"


@pytest.fixture
def stage(tmp_path: Path, environment: Callable[..., dict[str, str]], term: str) -> Iterator[Stage]:
    found = Stage(tmp_path, environment(), term)
    yield found
    for screen in found.screens:
        discard(screen.process)
        screen.close()


def story_of(screen: Screen) -> str:
    """What a command has shown before its summary, and the last line of that, without times and process numbers."""
    lines = [line for line in screen.shown.splitlines() if line.strip()]
    lines = [line for line in lines if not re.fullmatch(r" *peak", line)]
    if "Checking the cells..." not in lines:  # what a reader of the files may miss, or find begun
        lines = [re.sub(r"cells: (2|1 running, 1) pending", "cells", line) for line in lines]
        lines = [line for line in lines if not re.fullmatch(r"\[.*way=(?!waits).* started", line)]
    ends = [at for at, line in enumerate(lines) if re.match(r" *way +status", line)]
    text = "\n".join([*lines[: ends[0] if ends else None], *(lines[-1:] if ends else [])])
    text = re.sub(r"\b\d+(\.\d+)? s\b|\b\d+(\.\d)?s\b", "#", text)
    text = re.sub(r"process \d+", "process #", text)
    return re.sub(r" {2,}", "  ", text)


def told(stage: Stage) -> str:
    return "\n\n".join(map(story_of, stage.screens))


@pytest.mark.parametrize(("scene", "term"), SCENES, ids=[heading(*each) for each in SCENES])
def test_a_scene_is_told_as_on_its_page(scene: Callable[[Stage], None], term: str, stage: Stage) -> None:
    scene(stage)
    pages = dict(part.split("\n", 1) for part in PAGE.read_text().split("## ")[1:])
    assert told(stage) == pages[heading(scene, term)].strip("`\n"), told(stage)
