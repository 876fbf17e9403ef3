"""The adapter of multiprocessing's private names: its versions, and every name that it wraps."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from runmanager.launching.local.multiprocessing_internals import PYTHON_VERSIONS

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the forkserver is used on Linux only")

IMPORTS = "from runmanager.launching.local import multiprocessing_internals as internals\n"

STATE = (
    IMPORTS
    + """
import json, os, sys
if __name__ == "__main__":
    print(json.dumps(internals.interpreter_state()), os.getcwd(), sys.argv, sys.path, sep="\\n", flush=True)
"""
)

RESTORE = (
    IMPORTS
    + """
import json, os, sys
state = json.loads(sys.argv[1])
if __name__ == "__main__":
    internals.restore_interpreter_state(state)
    main = sys.modules["__main__"]
    print(os.getcwd() == state["dir"], sys.argv == state["sys_argv"], sys.path == state["sys_path"], main.marker)
"""
)

MAIN = (
    IMPORTS
    + """
import os, sys
if __name__ == "__main__":
    before = os.getcwd(), list(sys.argv), list(sys.path)
    try:
        internals.import_main_module({"init_main_from_path": sys.argv[1], "dir": "/", "sys_argv": ["other"]})
    except RuntimeError as error:
        print("refused", "bootstrapping phase" in str(error))
    else:
        print(sys.modules["__main__"].marker, (os.getcwd(), sys.argv, sys.path) == before)
    print(hasattr(__import__("multiprocessing").current_process(), "_inheriting"))
"""
)

SERVER = (
    IMPORTS
    + """
import multiprocessing, os, signal
from multiprocessing import resource_tracker

def parent(pipe):
    pipe.send(os.getppid())
    pipe.recv()

if __name__ == "__main__":
    internals.start_resource_tracker()
    print(resource_tracker._resource_tracker._fd is not None)
    server = internals.start_forkserver()
    print(internals.start_forkserver() == server)
    pipe, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("forkserver").Process(target=parent, args=(theirs,))
    process.start()
    print(pipe.recv() == server)
    os.kill(server, signal.SIGKILL)
    process.join()
    print(process.exitcode == internals.LOST_EXIT_CODE)
    pipe.send("the process may end")
"""
)

AFTER_FORK = (
    IMPORTS
    + """
import multiprocessing

class Owner:
    def note(self):
        print("in the child", flush=True)

if __name__ == "__main__":
    owner = Owner()
    internals.register_after_fork(owner, Owner.note)
    process = multiprocessing.get_context("fork").Process(target=print, args=("then its work",))
    process.start()
    process.join()
"""
)


def test_this_python_is_one_that_the_adapter_was_read_against() -> None:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert python in PYTHON_VERSIONS, (
        f"runmanager/launching/local/multiprocessing_internals.py must be read against Python {python}, got "
        f"{PYTHON_VERSIONS}; its docstring says what to check"
    )


def _lines(driver: Any) -> list[str]:
    out, err = driver.communicate(timeout=60)
    assert driver.returncode == 0, err
    return list(out.splitlines())


def test_a_state_is_restored_in_another_process(start_driver: Any, tmp_path: Path) -> None:
    main = tmp_path / "main.py"
    main.write_text("marker = 'imported'\n")
    printed, folder, arguments, path = _lines(start_driver(STATE, "a", "b"))
    state = json.loads(printed)
    assert (state["dir"], repr(state["sys_argv"]), repr(state["sys_path"])) == (folder, arguments, path)
    assert Path(state["init_main_from_path"]).parent == tmp_path
    state = {**state, "init_main_from_path": str(main), "dir": str(tmp_path.parent)}
    assert _lines(start_driver(RESTORE, json.dumps(state))) == ["True True True imported"]


def test_only_the_main_module_of_a_state_is_imported(start_driver: Any, tmp_path: Path) -> None:
    main = tmp_path / "main.py"
    main.write_text("marker = __name__\n")
    assert _lines(start_driver(MAIN, str(main))) == ["__mp_main__ True", "False"]


def test_a_main_module_that_starts_processes_on_import_is_refused(start_driver: Any, tmp_path: Path) -> None:
    main = tmp_path / "main.py"
    main.write_text("import multiprocessing\nmultiprocessing.get_context('spawn').Process(target=print).start()\n")
    assert _lines(start_driver(MAIN, str(main))) == ["refused True", "False"]


@linux_only
def test_the_forkserver_is_the_parent_of_its_processes_and_its_death_is_seen(start_driver: Any) -> None:
    assert _lines(start_driver(SERVER)) == ["True"] * 4


@linux_only
def test_a_function_is_called_in_a_forked_process(start_driver: Any) -> None:
    assert _lines(start_driver(AFTER_FORK)) == ["in the child", "then its work"]
