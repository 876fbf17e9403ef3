"""The death of a driver ends all that it started."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="binds processes by a Linux system call")

DRIVER = """
from pathlib import Path
import launching_jobs as jobs
from runmanager.launching.local.engine import Job, Listener, LocalEngine

if __name__ == "__main__":
    work = [Job(0, jobs.ignore_sigterm, (Path("a"),)), Job(1, jobs.ignore_sigterm, (Path("b"),))]
    LocalEngine(workers=2).run(work, Listener())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGHUP])
def test_the_jobs_of_a_killed_driver_die(
    start_driver: Any, tmp_path: Path, wait_for: Callable[..., None], is_gone: Callable[[int], bool], number: int
) -> None:
    driver = start_driver(DRIVER)
    wait_for(lambda: (tmp_path / "a").exists() and (tmp_path / "b").exists(), "both jobs")
    jobs = [int((tmp_path / name).read_text().split()[0]) for name in "ab"]
    servers = [process.pid for process in psutil.Process(driver.pid).children(recursive=True)]
    assert set(jobs) < set(servers)
    driver.send_signal(number)
    assert driver.wait(60) == -number
    for pid in servers:
        if pid not in {int(pid) for name in "ab" for pid in (tmp_path / name).read_text().split()[1:]}:
            wait_for(lambda pid=pid: is_gone(pid), f"the end of {pid}")
    for name in "ab":  # the test's grandchild, which is not bound
        os.kill(int((tmp_path / name).read_text().split()[1]), signal.SIGKILL)


# Each process creates a file and then runs until the driver's end should end it.
MARKER = """
import os, signal, sys, time
from pathlib import Path

def stay(name):
    Path(f"{name}.{os.getpid()}").touch()
    signal.alarm(100)
    while True:
        time.sleep(100)
"""

STARTING = """
import sys
import threading
from pathlib import Path

import marker

when = sys.argv[1] if __name__ == "__main__" else Path("when").read_text()
if __name__ != "__main__" and when == "trial import":
    marker.stay("trial")
if __name__ != "__main__" and when == "import of the main module":
    if Path("tried").exists():
        marker.stay("job")
    Path("tried").touch()
    threading.Thread(target=threading.Event().wait, daemon=True).start()  # makes each job import this module itself

import launching_jobs as jobs
from runmanager.launching.local.engine import Job, Listener, LocalEngine

if __name__ == "__main__":
    Path("when").write_text(when)
    function = jobs.start_from_a_thread if when == "start from a thread" else jobs.start_many
    preload = ["slow"] if when == "preloading" else []
    LocalEngine(workers=2, preload=preload).run([Job(key, function) for key in range(2)], Listener())
"""


@pytest.mark.parametrize(
    ("when", "sign"),
    [
        ("preloading", "server"),
        ("trial import", "trial"),
        ("import of the main module", "job"),
        ("start of workers", "worker"),
        ("start from a thread", "answered"),
    ],
)
def test_what_a_killed_driver_is_just_starting_dies(
    start_driver: Any,
    tmp_path: Path,
    wait_for: Callable[..., None],
    is_gone: Callable[[int], bool],
    when: str,
    sign: str,
) -> None:
    (tmp_path / "marker.py").write_text(MARKER)
    (tmp_path / "slow.py").write_text("import marker; marker.stay('server')")
    driver = start_driver(STARTING, when, PYTHONPATH=f"{tmp_path}:{os.environ['PYTHONPATH']}")
    started = psutil.Process(driver.pid)
    wait_for(lambda: any(tmp_path.glob(f"{sign}.*")), when)
    descendants = {process.pid for process in started.children(recursive=True)}
    driver.kill()
    assert driver.wait(60) == -signal.SIGKILL
    # Processes that were forked meanwhile have created their file, or died before.
    known = lambda: descendants | {int(path.suffix[1:]) for path in tmp_path.glob("*.[0-9]*")}  # noqa: E731
    wait_for(lambda: all(is_gone(pid) for pid in known()), "the end of all")


SLOW_SERVER = """
import os, sys, time
from pathlib import Path
if "multiprocessing.forkserver" in " ".join(sys.orig_argv):
    Path("server").write_text(str(os.getpid()))
    while Path("gate").exists():
        time.sleep(0.01)
"""


def test_a_server_that_starts_after_its_driver_s_death_exits(
    start_driver: Any, tmp_path: Path, wait_for: Callable[..., None], is_gone: Callable[[int], bool]
) -> None:
    (tmp_path / "marker.py").write_text(MARKER)
    (tmp_path / "slow.py").write_text("import marker; marker.stay('server')")
    (tmp_path / "sitecustomize.py").write_text(SLOW_SERVER)
    (tmp_path / "gate").touch()
    driver = start_driver(STARTING, "preloading", PYTHONPATH=f"{tmp_path}:{os.environ['PYTHONPATH']}")
    wait_for(lambda: (tmp_path / "server").exists() and (tmp_path / "server").read_text() != "", "the server")
    driver.kill()
    driver.wait(60)
    (tmp_path / "gate").unlink()
    wait_for(lambda: is_gone(int((tmp_path / "server").read_text())), "the end of the server")
    assert not list(tmp_path.glob("server.*")), "it imported modules that no job will need"


def test_a_process_that_a_job_forked_itself_may_outlive_it(
    start_driver: Any, tmp_path: Path, wait_for: Callable[..., None], is_gone: Callable[[int], bool]
) -> None:
    driver = start_driver(DRIVER.replace('jobs.ignore_sigterm, (Path("a"),)', 'jobs.leave_a_daemon, (Path("a"),)'))
    wait_for(lambda: (tmp_path / "a").exists() and (tmp_path / "b").exists(), "the jobs")
    daemon = int((tmp_path / "a").read_text())
    driver.kill()
    job, grandchild = map(int, (tmp_path / "b").read_text().split())
    wait_for(lambda: is_gone(job), "the end of the other job")
    assert not is_gone(daemon)
    for pid in (daemon, grandchild):
        os.kill(pid, signal.SIGKILL)


# What must work in a container before our own driver is tried: a process and its forkserver.
PLAIN = """
import multiprocessing
if __name__ == '__main__':
    process = multiprocessing.get_context("forkserver").Process(target=print)
    process.start()
    process.join()
    print("works")
"""

IN_CONTAINER = """
import os
import launching_jobs as jobs
from runmanager.launching.local.engine import LocalEngine, call_in_process
if __name__ == '__main__':
    print(os.getpid(), type(call_in_process(LocalEngine(), jobs.my_pid).answer).__name__)
"""


def output_in_container(folder: Path, script: str) -> str | None:
    """Return the output of a script as the first process of a container; None without containers or on a timeout."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return None
    (folder / "script.py").write_text(script)
    # To a file, not a pipe: if the container does not exit, its processes keep a pipe open.
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(
            [unshare, "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "script.py"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            return None
    return (folder / "output").read_text() if process.returncode == 0 else None


def test_a_driver_may_be_the_first_process_of_a_container(tmp_path: Path) -> None:
    """Its server has process 1 as its parent, without being orphaned."""
    if output_in_container(tmp_path, PLAIN) != "\nworks\n":
        pytest.skip("a container with processes cannot be made here")
    assert output_in_container(tmp_path, IN_CONTAINER) == "1 Returned\n"
