"""The driver's main module: imported once for all jobs, unless it starts threads or a GPU, or fails."""

from pathlib import Path
from typing import Any

import pytest

DRIVER = """
import os, sys, threading
from pathlib import Path
from runmanager.launching.local.engine import Job, Listener, LocalEngine

handle = os.open("imports", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(handle, f"{__name__} {os.getpid()}\\n".encode())
os.close(handle)

if "threads" in os.environ.get("ON_IMPORT", ""):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
if "opens a GPU" in os.environ.get("ON_IMPORT", ""):
    os.path.realpath = lambda path: "/dev/kfd"  # the file that AMD's driver has
if "exits" in os.environ.get("ON_IMPORT", "") and __name__ != "__main__":
    sys.exit(5)


def function():
    return "a function of the main module"


class Printing(Listener):
    def ended(self, ending):
        print(ending.job.key, getattr(ending.answer, "value", ending.exit_code), flush=True)


if __name__ == "__main__":
    LocalEngine().run([Job(key, function) for key in range(3)], Printing())
"""


@pytest.mark.parametrize(
    ("on_import", "imports"),
    [
        ("", {"__main__": 1, "__mp_main__": 2}),  # in the trial fork, and for all jobs
        ("threads", {"__main__": 1, "__mp_main__": 4}),  # in the trial fork, and in each job
        ("opens a GPU", {"__main__": 1, "__mp_main__": 4}),
    ],
)
def test_it_is_imported_once_for_all_jobs_unless_it_starts_threads_or_a_gpu(
    start_driver: Any, tmp_path: Path, on_import: str, imports: dict[str, int]
) -> None:
    out, err = start_driver(DRIVER, ON_IMPORT=on_import).communicate(timeout=60)
    assert out.splitlines() == [f"{key} a function of the main module" for key in range(3)], err
    names = [line.split()[0] for line in (tmp_path / "imports").read_text().splitlines()]
    assert {name: names.count(name) for name in names} == imports


def test_a_main_module_that_cannot_be_imported_fails_each_job(start_driver: Any) -> None:
    driver = start_driver(DRIVER, ON_IMPORT="exits")
    out, err = driver.communicate(timeout=60)
    assert out.splitlines() == ["0 1", "1 1", "2 1"], err
