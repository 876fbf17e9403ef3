"""A script's own help: the script is called with `--help`, without a GPU, a terminal or an end later than a minute."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["HELP_SECONDS", "call_for_help"]

HELP_SECONDS = 60.0
_MAX_BYTES = 2**20
_WIDE = {"COLUMNS": "500", "NO_COLOR": "1", "TERM": "dumb"}  # libraries wrap and cut names by the width
_NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
_DROPPED = ("LINES", "FORCE_COLOR", "CLICOLOR_FORCE", "PY_COLORS")


def call_for_help(command: Sequence[str], library: str, folder: Path, *, seconds: float) -> str | None:
    """Return what a script's command prints on both streams with `--help`; None if it did not end within `seconds`.

    The script runs in `folder`, in a session of its own, and is killed with all that it started. What it prints after
    the first mebibyte is lost.
    """
    flag = "--helpfull" if library == "absl" else "--help"  # absl's `--help` shows the flags of the script's file only
    process = subprocess.Popen(
        [*command, flag],
        cwd=folder,
        env=_environment(os.environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    is_late = threading.Event()

    def give_up() -> None:
        is_late.set()
        _kill_session(process)

    timer = threading.Timer(seconds, give_up)
    timer.start()
    try:
        assert process.stdout is not None
        with process.stdout:
            output = process.stdout.read(_MAX_BYTES)
    finally:
        timer.cancel()
        _kill_session(process)
        process.wait()
    return None if is_late.is_set() else output.decode("utf-8", errors="replace")


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in variables.items() if name not in _DROPPED}
    return {**kept, **_WIDE, **_NO_GPU}
