"""When the driver is gone, however it went, so is all that it started."""

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

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ties processes by a call of Linux")

DRIVER = """
from pathlib import Path
import launching_jobs as jobs
from runmanager.launching.engine import Job, Listener, LocalEngine

if __name__ == "__main__":
    LocalEngine(workers=2).run([Job(0, jobs.stay_deaf, (Path("a"),)), Job(1, jobs.stay_deaf, (Path("b"),))], Listener())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGHUP])
def test_a_driver_that_is_killed_takes_its_jobs_along(
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
        if pid not in {int(told) for name in "ab" for told in (tmp_path / name).read_text().split()[1:]}:
            wait_for(lambda pid=pid: is_gone(pid), f"the end of {pid}")
    for name in "ab":  # a grandchild of the test's that nothing ties
        os.kill(int((tmp_path / name).read_text().split()[1]), signal.SIGKILL)


# What must work in a container before our own driver is asked: two processes, of which the first ends before the other.
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
from runmanager.launching.engine import LocalEngine, call
if __name__ == '__main__':
    print(os.getpid(), type(call(LocalEngine(), jobs.my_pid).answer).__name__)
"""


def said_in_container(folder: Path, script: str) -> str | None:
    """What a script says as the first process of a container; None where that cannot be made, or comes to no end."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return None
    (folder / "script.py").write_text(script)
    # Into a file: who waits for the end of a pipe waits for all that hold it, should the container not go away.
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(
            [unshare, "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "script.py"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            return None
    return (folder / "said").read_text() if process.returncode == 0 else None


def test_a_driver_may_be_the_first_process_of_a_container(tmp_path: Path) -> None:
    """The parent of its server is process 1 then, and is not gone for that."""
    if said_in_container(tmp_path, PLAIN) != "\nworks\n":
        pytest.skip("a container with processes cannot be made here")
    assert said_in_container(tmp_path, IN_CONTAINER) == "1 Returned\n"
