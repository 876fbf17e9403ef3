"""A short form of `make test-mutants`, and the changes that it makes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # as when it is run as a command

from mutations import find_mutants, mutated_tree

ROOT = Path(__file__).resolve().parents[2]
MODULE = '''"""A module."""

LIMIT = 3
__all__ = ["first"]


def first(values: "list[int]", at: int = 0) -> int | None:
    """Return a value."""
    assert values is not None
    if not values or at > LIMIT:
        return None
    for each in values:
        if each:
            continue
        print(f"{each + 1}")
    return min(values) - 0.5
'''
CHANGES = [
    ("LIMIT = 3", "LIMIT = 4"),
    (
        "def first(values: 'list[int]', at: int=0) -> int | None:",
        "def first(values: 'list[int]', at: int=1) -> int | None:",
    ),
    ("if not values or at > LIMIT:", "if not values and at > LIMIT:"),
    ("if not values or at > LIMIT:", "if values or at > LIMIT:"),
    ("if not values or at > LIMIT:", "if not values or at >= LIMIT:"),
    ("if each:", "if not each:"),
    ("continue", "break"),
    ("print(f'{each + 1}')", "pass"),
    ("return min(values) - 0.5", "return None"),
    ("return min(values) - 0.5", "return min(values) + 0.5"),
    ("return min(values) - 0.5", "return max(values) - 0.5"),
    ("return min(values) - 0.5", "return min(values) - 1.0"),
]


def test_each_change_is_one_that_a_test_could_see(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(MODULE)
    found = find_mutants(tmp_path, "module.py")
    assert [(each.before, each.after) for each in found] == CHANGES
    assert [each.function.name if each.function else None for each in found] == [None, None, *["first"] * 10]
    for each in found:
        values: dict[str, object] = {}
        exec(compile(mutated_tree(MODULE, each.index), "module.py", "exec"), values)
    (tmp_path / "module.py").write_text(f"# Further down.\n{MODULE}")
    assert [each.key for each in find_mutants(tmp_path, "module.py")] == [each.key for each in found]
    assert len({each.key for each in found}) == len(found)


@pytest.mark.skipif(sys.platform != "linux", reason="needs processes that are forked and adopted")
def test_the_command_tells_what_the_tests_notice_and_continues(tmp_path: Path) -> None:
    target = "runmanager/results/stats/descriptive.py"
    before = (ROOT / target).read_bytes()

    def run(*tests: str, work: Path) -> tuple[str, list[list[str]]]:
        words = [sys.executable, "tests/mutation/mutants.py", "--count", "5", "--targets", target]
        done = subprocess.run(
            [*words, "--work", str(work), "--tests", *tests],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout, [json.loads(line) for line in (work / "outcomes.jsonl").read_text().splitlines()]

    own = "tests/results/stats/test_descriptive.py"
    printed, outcomes = run(own, work=tmp_path / "own")
    killed = [test for _, word, test in outcomes if word == "killed"]
    assert len(outcomes) == 5 and len(killed) >= 3
    assert all(test.startswith(own) for test in killed)
    assert f"{len(killed)} of 5 changes noticed, 0 not tried" in printed
    (tmp_path / "ended").mkdir()
    (tmp_path / "ended" / "outcomes.jsonl").write_text(json.dumps(outcomes[0]) + "\n")  # as if it was ended there
    continued = run("tests/results/stats/test_curve_crossing.py", work=tmp_path / "ended")[1]
    assert [key for key, *_ in continued] == [key for key, *_ in outcomes]
    assert [word for _, word, _ in continued[1:]] == ["not reached"] * 4
    assert (ROOT / target).read_bytes() == before
