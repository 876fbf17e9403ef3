"""Python programs as processes that share their imports: forks of a server that has made them, so each starts fast."""

import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping
from multiprocessing.context import ForkServerContext
from pathlib import Path

from commands import ROOT

INJECTED = Path(__file__).parent / "faults" / "injected"
"""The folder of the module that injects faults into processes."""

_IMPORTS = ["torch", "torch._dynamo", "torchdata.stateful_dataloader", "matplotlib.figure", "pandas", "scipy.stats"]
_OURS = ["runmanager.tracking.manager", "runmanager.results.result_files", "runmanager.results.report.report"]


def _server() -> ForkServerContext:
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_IMPORTS, *_OURS])
    return context


class ForkedProgram:
    """`python WORDS…` in `folder`, in a new process group, with the methods of `subprocess.Popen` that are needed."""

    def __init__(self, folder: Path, *words: str, log: Path, variables: Mapping[str, str] | None = None) -> None:
        self._process = _server().Process(target=_run, args=(folder, words, log, dict(variables or {})))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise TimeoutError(f"timed out waiting for process {self.pid}")
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()


def _run(folder: Path, words: tuple[str, ...], log: Path, variables: dict[str, str]) -> None:
    os.setsid()
    os.environ |= variables
    _inject_faults()
    multiprocessing.set_start_method("fork", force=True)  # for loader workers; a fork of the server has another default
    os.chdir(folder)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.argv = list(words)
    runpy.run_path(words[0], run_name="__main__")


def _inject_faults() -> None:
    """Install the faults that the environment asks for, as a new process does by itself."""
    sys.path.insert(0, str(INJECTED))
    import fault_seam

    fault_seam.install_from_environment()
    sys.path.remove(str(INJECTED))
