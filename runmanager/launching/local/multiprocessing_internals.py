"""Private and undocumented names of CPython's multiprocessing. No other module of `launching` uses any.

Read against CPython 3.11 to 3.14. On an upgrade: run this module's tests with the new version, read what changed
in multiprocessing's `forkserver.py`, `popen_forkserver.py`, `spawn.py` and `util.py`, and add the version below.
"""

import multiprocessing
from collections.abc import Callable, Mapping
from multiprocessing import forkserver, resource_tracker, spawn, util
from typing import Any

PYTHON_VERSIONS = ("3.11", "3.12", "3.13", "3.14")
"""The versions of CPython that this module was read against."""

LOST_EXIT_CODE = 255
"""The exit code of every process whose forkserver is gone, whether the process still runs or not."""

MAIN_MODULE_KEYS = ("init_main_from_name", "init_main_from_path")
"""The keys of the main module, of which a state has at most one."""

_STATE_KEYS = ("sys_path", "sys_argv", "orig_dir", "dir", *MAIN_MODULE_KEYS)


def start_resource_tracker() -> None:
    """Start multiprocessing's resource tracker, if it does not run."""
    resource_tracker.ensure_running()


def start_forkserver() -> int | None:
    """Start the forkserver, if it does not run, and return its pid; None where this Python keeps it elsewhere."""
    forkserver.ensure_running()
    return getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)


def interpreter_state() -> dict[str, Any]:
    """Return the folder, import path, arguments and main module that multiprocessing passes on to a child process."""
    return {key: value for key, value in spawn.get_preparation_data("").items() if key in _STATE_KEYS}


def restore_interpreter_state(state: Mapping[str, Any]) -> None:
    """Apply a state to this process and import its main module, as multiprocessing does in a child process."""
    spawn.prepare(dict(state))


def import_main_module(state: Mapping[str, Any]) -> None:
    """Import the main module of a state, if it has one, and apply nothing else of it.

    Raises what the module raises; `RuntimeError` where it starts a process on import.
    """
    process: Any = multiprocessing.current_process()
    process._inheriting = True  # makes `Process.start` raise
    try:
        spawn.prepare({key: state[key] for key in MAIN_MODULE_KEYS if key in state})
    finally:
        del process._inheriting


def register_after_fork(owner: Any, function: Callable[[Any], object]) -> None:
    """Call `function(owner)` in every process that multiprocessing forks from this one, while `owner` lives."""
    util.register_after_fork(owner, function)
