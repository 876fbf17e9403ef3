"""The environments of `make test-matrix`, without installing them."""

import itertools
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # as when it is run as a command

import matrix
import overlay


def test_environments_hold_every_pair_of_frameworks_and_every_python() -> None:
    everyday = matrix.Environment("3.11", "newest", "1.3")
    found = [everyday, *matrix.ENVIRONMENTS]
    assert {(each.torch, each.hydra) for each in found} == set(itertools.product(("oldest", "newest"), ("1.3", "1.4")))
    assert {each.python for each in found} == {"3.11", "3.12", "3.13", "3.14"}
    assert len(matrix.ENVIRONMENTS) == 5


def test_versions_are_those_of_the_project() -> None:
    assert [each.partition("==")[0] for each in matrix.frameworks("newest")] == ["torch", "torchvision"]
    oldest = [each.removesuffix(".*") for each in matrix.frameworks("oldest")]
    project = (matrix.ROOT / "pyproject.toml").read_text()
    assert all(f'"{each.replace("==", ">=")}"' in project for each in oldest)


def test_a_missing_interpreter_is_named_and_not_tried() -> None:
    here = "{}.{}".format(*sys.version_info)
    assert matrix.interpreter(here) is not None
    assert matrix.interpreter("3.99") is None
    passed, came = matrix.try_environment(matrix.Environment("3.99", "newest", "1.3"), [])
    assert passed and came == "not tried: this machine has no Python 3.99"


def test_an_overlay_has_its_own_packages_before_those_of_this_environment(tmp_path: Path) -> None:
    own = overlay.create(tmp_path / "overlay")
    (own / "pyte.py").write_text("")
    for _ in range(2):  # a second call keeps what there is
        assert overlay.create(tmp_path / "overlay") == own
        code = "import pytest, runmanager, pyte; print(pyte.__file__)"
        words = [tmp_path / "overlay" / "bin" / "python", "-c", code]
        done = subprocess.run(words, cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
        assert done.stdout.strip() == str(own / "pyte.py"), done.stderr


def test_counts_are_those_of_the_last_line() -> None:
    printed = "=== short test summary info ===\nSKIPPED [3] it has 2 failed runs\n1234 passed, 3 skipped in 9.12s\n"
    assert matrix.counts(printed) == "1,234 passed, 3 skipped"
    assert matrix.counts("2 failed, 4299 passed, 1 xfailed in 1803.79s (0:30:03)") == "2 failed, 4,299 passed"
    assert matrix.counts("") == "no test ended"
