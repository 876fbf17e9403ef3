"""When the driver is gone, however it went, so is all that it started."""

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


def can_unshare() -> bool:
    unshare = shutil.which("unshare")
    return (
        unshare is not None
        and not subprocess.run(
            [unshare, "--pid", "--fork", "--mount-proc", "true"], check=False, capture_output=True, timeout=60
        ).returncode
    )


def test_a_driver_may_be_the_first_process_of_a_container(tmp_path: Path) -> None:
    """The parent of its server is process 1 then, and is not gone for that."""
    if not can_unshare():
        pytest.skip("making a container wants rights that this process lacks")
    (tmp_path / "driver.py").write_text(
        "import os\n"
        "import launching_jobs as jobs\n"
        "from runmanager.launching.engine import LocalEngine, call\n"
        "if __name__ == '__main__':\n"
        "    print(os.getpid(), type(call(LocalEngine(), jobs.my_pid).answer).__name__)\n"
    )
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "driver.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout == "1 Returned\n", done.stderr
