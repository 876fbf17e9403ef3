"""The environments of `make test-matrix`, without installing them."""

import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # as when it is run as a command

import matrix


def test_environments_hold_every_pair_of_frameworks_and_every_python() -> None:
    everyday = matrix.Environment("3.11", "newest", "1.3")
    found = [everyday, *matrix.ENVIRONMENTS]
    assert {(each.torch, each.hydra) for each in found} == set(itertools.product(("oldest", "newest"), ("1.3", "1.4")))
    assert {each.python for each in found} == {"3.11", "3.12", "3.13"}
    assert len(matrix.ENVIRONMENTS) == 4


def test_versions_are_those_of_the_project() -> None:
    assert [each.partition("==")[0] for each in matrix.frameworks("newest")] == ["torch", "torchvision"]
    oldest = [each.removesuffix(".*") for each in matrix.frameworks("oldest")]
    project = (matrix.ROOT / "pyproject.toml").read_text()
    assert all(f'"{each.replace("==", ">=")},' in project for each in oldest)


def test_a_missing_interpreter_is_named_and_not_tried() -> None:
    here = "{}.{}".format(*sys.version_info)
    assert matrix.interpreter(here) is not None
    assert matrix.interpreter("3.99") is None
    passed, came = matrix.try_environment(matrix.Environment("3.99", "newest", "1.3"), [])
    assert passed and came == "not tried: this machine has no Python 3.99"
