"""What the forkserver imports before it forks the first job."""

from pathlib import Path
from typing import Any

import pytest

DRIVER = """
import sys
import launching_jobs as jobs
from runmanager.launching.local.engine import LocalEngine, call_in_process

def loaded(*names):
    import sys
    return [name in sys.modules for name in names]

if __name__ == "__main__":
    engine = LocalEngine(preload=sys.argv[1:])
    print(call_in_process(engine, loaded, *sys.argv[1:]).answer, flush=True)
    print(type(call_in_process(engine, jobs.my_pid).answer).__name__, flush=True)
"""


@pytest.mark.parametrize(
    ("bad", "source"),
    [
        ("raises", "raise RuntimeError('broken')"),
        ("misspelt", "def ("),
        ("missing", None),
        ("imports_missing", "import no_such_module"),
        ("exits", "import sys; sys.exit('not here')"),
    ],
)
def test_jobs_run_although_a_preloaded_module_fails(
    start_driver: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: str, source: str | None
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    if source is not None:
        (tmp_path / f"{bad}.py").write_text(source)
    driver = start_driver(DRIVER, "json", bad, "decimal")
    out, err = driver.communicate(timeout=60)
    assert out.splitlines() == ["Returned(value=[True, False, True])", "Returned"], err


def test_every_job_starts_with_the_preloaded_modules(start_driver: Any) -> None:
    out, err = start_driver(DRIVER, "wave", "colorsys").communicate(timeout=60)
    assert out.splitlines() == ["Returned(value=[True, True])", "Returned"], err


MANY = """
import sys
import psutil
import launching_jobs as jobs
from runmanager.launching.local.engine import LocalEngine, call_in_process

def frozen():
    import gc
    return gc.isenabled() and gc.get_freeze_count() > 1000

if __name__ == "__main__":
    engine = LocalEngine(preload=["wave"])
    engine.get_ready(num_jobs=1000)
    before = {each.pid for each in psutil.Process().children()}
    print(call_in_process(engine, frozen).answer, call_in_process(engine, frozen).answer, flush=True)
    print(before == {each.pid for each in psutil.Process().children()}, flush=True)
"""


def test_a_server_prepared_for_many_jobs_runs_them(start_driver: Any) -> None:
    out, err = start_driver(MANY).communicate(timeout=60)
    assert out.splitlines() == ["Returned(value=True) Returned(value=True)", "True"], err
