"""Change the package in small ways, one at a time, and see which changes its tests notice.

python tests/mutation/mutants.py --count 600 --write

Which changes are tried, and in which order, is decided by hashes with the seed: the same 600 for the same code. What
came of each is kept in build/mutants, so the command continues where it was ended. `--again` tries those that survived
once more, after the tests were changed.
"""

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from forks import adopt_orphans, answer_of_fork
from mutations import Mutant, find_mutants
from reach import Reach, fingerprint, record_reach
from survivors_page import write_page
from trials import KILLED, NOT_REACHED, SURVIVED, TIMED_OUT, Outcome, Trials

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "mutants"
TARGETS = (
    "runmanager/records",
    "runmanager/results/stats",
    "runmanager/results/compare",
    "runmanager/results/metrics",
    "runmanager/results/findings/best.py",
)
TESTS = (
    "tests/records",
    *(f"tests/results/{name}" for name in ("stats", "compare", "metrics", "findings", "gate", "load", "tables")),
    *("tests/results/table_model", "tests/results/test_stored_sweep.py", "tests/results/test_sweep.py"),
)
WANTED = 0.85
CHECKED_EVERY = 25
REACH_SECONDS = 3600.0


def sample(targets: Sequence[str], *, count: int, seed: int) -> list[Mutant]:
    """Return `count` changes of the files of `targets`, in the order in which they are tried."""
    mutants = [mutant for file in files_of(targets) for mutant in find_mutants(ROOT, file)]
    return sorted(mutants, key=lambda each: hashlib.sha256(f"{seed} {each.key}".encode()).digest())[:count]


def files_of(targets: Sequence[str]) -> list[str]:
    """Return the Python files of folders and files, relative to the root."""
    paths = [path for target in targets for path in sorted((ROOT / target).rglob("*.py"))]
    paths += [ROOT / target for target in targets if target.endswith(".py")]
    return [str(path.relative_to(ROOT)) for path in paths]


@dataclass
class Outcomes:
    """What came of each change, by key, kept in a file."""

    path: Path
    known: dict[str, Outcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            key, word, test = json.loads(line)
            self.known[key] = Outcome(word, test)

    def add(self, mutant: Mutant, outcome: Outcome) -> None:
        self.known[mutant.key] = outcome
        with self.path.open("a") as file:
            file.write(json.dumps([mutant.key, outcome.word, outcome.test]) + "\n")


@dataclass(eq=False)  # pytest keeps plugins in sets
class Run:
    """A plugin of pytest that tries changes instead of running the collected tests."""

    mutants: Sequence[Mutant]
    outcomes: Outcomes
    options: argparse.Namespace
    scratch: Path
    num_checked: int = 0
    unsteady: list[str] = field(default_factory=list)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("tests that cannot be collected")
        adopt_orphans()
        reach = self._reach(session)
        print(f"{len(reach.seconds):,} tests, {len(reach.failed)} of them failed unchanged: {reach.failed[:5]}")
        trials = Trials(session, ROOT, self.scratch, reach, self.options.budget)
        until = time.monotonic() + 60 * self.options.minutes
        for number, mutant in enumerate(self._pending(), start=1):
            if time.monotonic() > until:
                break
            outcome = trials.outcome_of(mutant)
            self.outcomes.add(mutant, outcome)
            print(f"{number} {outcome.word:11} {mutant.file} {mutant.scope}: {mutant.after}", flush=True)
            if number % CHECKED_EVERY == 0 and mutant.function is not None:
                self.num_checked += 1
                if not trials.passes_unchanged(mutant):
                    self.unsteady.append(mutant.key)
        return True

    def _pending(self) -> list[Mutant]:
        tried_again = (SURVIVED, NOT_REACHED) if self.options.again else ()
        known = self.outcomes.known
        left = [each for each in self.mutants if each.key not in known or known[each.key].word in tried_again]
        return [each for each in left if each.file.startswith(tuple(self.options.only))]

    def _reach(self, session: pytest.Session) -> Reach:
        mark = fingerprint(ROOT, ("runmanager", *self.options.tests))
        path = self.options.work / f"reach-{'-'.join(Path(each).stem for each in self.options.tests)}.json"
        if path.exists():
            reach = msgspec.json.decode(path.read_bytes(), type=Reach, strict=False)
            if reach.fingerprint == mark:
                return reach
        files = sorted({each.file for each in self.mutants})
        answer = answer_of_fork(
            lambda: record_reach(session, ROOT, files, mark=mark, into=path), limit_seconds=REACH_SECONDS
        )
        if answer is not None:
            raise RuntimeError(f"The unchanged tests must end, got a process that {answer}.")
        return msgspec.json.decode(path.read_bytes(), type=Reach, strict=False)


def summary(mutants: Sequence[Mutant], outcomes: Mapping[str, Outcome]) -> tuple[int, int]:
    """Return how many changes were tried, and how many of them the tests noticed."""
    words = [outcomes[each.key].word for each in mutants if each.key in outcomes]
    return len(words), sum(word in (KILLED, TIMED_OUT) for word in words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=600, help="how many changes (default: 600)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (default: 0)")
    parser.add_argument("--targets", nargs="+", default=TARGETS, help="the files and folders to change")
    parser.add_argument("--only", nargs="+", default=[""], help="try only the chosen ones of these files and folders")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="the files and folders of tests")
    parser.add_argument("--budget", type=float, default=10, help="seconds of tests a change (default: 10)")
    parser.add_argument("--minutes", type=float, default=600, help="ends after this time; give the command again")
    parser.add_argument("--again", action="store_true", help="try those that survived once more")
    parser.add_argument("--work", type=Path, default=WORK, help="where the outcomes are kept (default: build/mutants)")
    parser.add_argument("--write", action="store_true", help="write docs/mutants.md and its row in docs/reliability.md")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    mutants = sample(options.targets, count=options.count, seed=options.seed)
    outcomes = Outcomes(options.work / "outcomes.jsonl")
    quiet = ["-q", "-s", "--no-header", "--no-summary", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "timeout=0"]
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        run = Run(mutants, outcomes, options, Path(scratch))
        status = pytest.main([*quiet, f"--basetemp={scratch}/temporary", *options.tests], plugins=[run])
    tried, killed = summary(mutants, outcomes.known)
    print(f"{killed} of {tried} changes noticed, {len(mutants) - tried} not tried")
    print(f"{run.num_checked} times without the change: {len(run.unsteady)} failed {run.unsteady}")
    if options.write:
        write_page(ROOT, mutants, outcomes.known)
    sys.exit(status or killed < WANTED * tried or tried < len(mutants))


if __name__ == "__main__":
    main()
