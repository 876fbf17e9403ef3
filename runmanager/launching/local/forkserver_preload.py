"""Set-up of the forkserver before it forks the first run. Imported for its effect, in the forkserver only.

It imports and computes nothing: tensor arithmetic would start OpenMP's threads, which a fork does not carry over, and
initialising CUDA here would break it in every run.
"""

import gc
import importlib
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from runmanager.launching.local.forkserver import MAIN_VARIABLE, SAFE_PATH, collapse_heap
from runmanager.launching.local.multiprocessing_internals import MAIN_MODULE_KEYS, import_main_module
from runmanager.launching.local.parent_death import bind_next_forks, die_with_parent
from runmanager.launching.local.worker import MANY_RUNS_VARIABLE, PRELOAD_VARIABLE
from runmanager.records.host.process import is_out_of_memory_error

_log = logging.getLogger(__name__)


def _import_modules(names: str) -> None:
    for name in filter(None, names.split(",")):
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # a run that needs it reports the fault; the forkserver must live
            if is_out_of_memory_error(error):
                os._exit(1)  # a run could neither start nor report it: torch cannot be imported a second time
            _log.debug("could not preload %s", name, exc_info=True)


def _preload_main_module(state: Mapping[str, Any]) -> None:
    """Import the driver's main module, which each run's process would else import itself.

    Python's own preloading of it does nothing on 3.11 and 3.12. A fork tries the import first, as the module may do on
    import what must not happen here.
    """
    if not any(key in state for key in MAIN_MODULE_KEYS):
        return
    trial = os.fork()
    if trial == 0:
        os._exit(0 if _is_harmless(state) else 1)
    _, status = os.waitpid(trial, 0)
    if status == 0:
        import_main_module(state)


_GPU_FILES = ("/dev/nvidia", "/dev/dxg", "/dev/kfd", "/dev/dri")  # NVIDIA's, Windows', AMD's, Intel's and AMD's


def _is_harmless(state: Mapping[str, Any]) -> bool:
    """Whether this process can still be forked after it has imported the main module: no threads, no GPU."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1)
    os.dup2(devnull, 2)
    had_gpu = _has_gpu()
    try:
        import_main_module(state)
    except BaseException:  # each run's process raises the same, where it can be read
        return False
    return len(os.listdir("/proc/self/task")) == 1 and _has_gpu() == had_gpu


def _has_gpu() -> bool:
    return "libcuda.so" in Path("/proc/self/maps").read_text(errors="replace") or any(
        os.path.realpath(f"/proc/self/fd/{name}").startswith(_GPU_FILES) for name in os.listdir("/proc/self/fd")
    )


def _leave_telling_to_the_driver(server: int) -> None:
    """Let this server end without a traceback where no further process may start: its driver names the limit."""
    show = sys.excepthook

    def end(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if isinstance(error, BlockingIOError) and os.getpid() == server:
            os._exit(1)
        show(kind, error, traceback)

    sys.excepthook = end


gc.disable()  # imported objects stay: searching them for garbage takes a tenth of the time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # a run's own process unblocks it; the driver signals that
_leave_telling_to_the_driver(os.getpid())
_state = json.loads(os.environ[MAIN_VARIABLE])
die_with_parent(_state["driver"])
bind_next_forks()
sys.path[:] = _state.get("sys_path", sys.path)
if not _state["safe_path"]:
    os.environ.pop(SAFE_PATH, None)
_import_modules(os.environ.get(PRELOAD_VARIABLE, ""))
_preload_main_module(_state)
gc.freeze()  # else the first collection in each run would write to every object, and so copy most of the memory
gc.enable()
if os.environ.get(MANY_RUNS_VARIABLE):
    collapse_heap()
