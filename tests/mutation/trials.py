"""A changed module before the tests that reach the change: in a forked process, or in a copy of the package."""

import ast
import compileall
import gc
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType

import pytest
from forks import DIED, TIMED_OUT, answer_of_fork, end_descendants
from mutations import Function, Mutant, mutated_tree
from reach import Reach

__all__ = ["KILLED", "NOT_REACHED", "SURVIVED", "TIMED_OUT", "Outcome", "Trials"]

KILLED, SURVIVED, NOT_REACHED = "killed", "survived", "not reached"
_COPIED = ("runmanager", "conf", "tests", "pyproject.toml")


@dataclass(frozen=True)
class Outcome:
    """What came of a change: one of the words above, and the test that failed."""

    word: str
    test: str = ""


@dataclass(frozen=True)
class Trials:
    """The collected tests of a session of pytest, whose process has imported everything but run nothing.

    A change of a function replaces the code of that function in a forked process. A change of what the import of a
    module carries out is made in a copy of the package, for which a new process runs the tests.
    """

    session: pytest.Session
    root: Path
    work: Path
    reach: Reach
    budget_seconds: float

    def outcome_of(self, mutant: Mutant) -> Outcome:
        """Try a change with the tests that reach its lines, as far as their times fit the budget."""
        tests = [] if mutant.function is None else self._selected(mutant, mutant.lines)
        code = self._changed_code(mutant) if tests else None
        if code is not None:
            return self._try_in_fork(tests, mutant.function, mutant.file, code)
        # What ran at import is not known by test: those that use the module may notice it.
        tests = tests or self._selected(mutant, None)
        return self._try_in_copy(mutant, tests) if tests else Outcome(NOT_REACHED)

    def passes_unchanged(self, mutant: Mutant) -> bool:
        """Whether the tests of a change pass without it, in the same order and way."""
        tests = self._selected(mutant, mutant.lines)
        return not tests or self._try_in_fork(tests, None, mutant.file, None).word == SURVIVED

    def _selected(self, mutant: Mutant, lines: tuple[int, int] | None) -> list[str]:
        """Return tests that reach these lines: of the module's own file, then of the cheapest files; cheapest first."""
        by_file: dict[str, list[str]] = defaultdict(list)
        own = str(Path("tests", *Path(mutant.file).parts[1:-1], f"test_{Path(mutant.file).name}"))
        reaching = self.reach.tests_of(mutant.file, lines)
        if lines is None:  # to read a constant runs no line of its module
            reaching |= {name for name in self._items if name.startswith(f"{own}::")} - set(self.reach.failed)
        for name in self._items:
            if name in reaching:
                by_file[name.partition("::")[0]].append(name)
        seconds = self.reach.seconds
        costs = {file: sum(seconds[name] for name in names) for file, names in by_file.items()}
        chosen, spent = [], 0.0
        for file in sorted(by_file, key=lambda file: (file != own, costs[file])):
            for name in sorted(by_file[file], key=lambda name: seconds[name]):
                if not chosen or spent + seconds[name] <= self.budget_seconds:
                    chosen.append(name)
                    spent += seconds[name]
        return chosen

    @cached_property
    def _items(self) -> Mapping[str, pytest.Item]:
        return {item.nodeid: item for item in self.session.items}

    @cached_property
    def _functions(self) -> Mapping[tuple[str, Function], list[FunctionType]]:
        """The functions of the package that live now, by file and name."""
        found: dict[tuple[str, Function], list[FunctionType]] = defaultdict(list)
        below = f"{self.root}/"
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and each.__code__.co_filename.startswith(below):
                code = each.__code__
                file = code.co_filename.removeprefix(below)
                found[file, Function(code.co_qualname, code.co_firstlineno)].append(each)
        return found

    def _changed_code(self, mutant: Mutant) -> CodeType | None:
        """Return the changed function's code; None if it cannot replace that of a living function."""
        if mutant.function is None:
            return None
        living = self._functions.get((mutant.file, mutant.function), [])
        path = self.root / mutant.file
        module = compile(mutated_tree(path.read_text(), mutant.index), str(path), "exec")
        code = next(
            (each for each in _codes(module) if Function(each.co_qualname, each.co_firstlineno) == mutant.function),
            None,
        )
        if code is None or not living or any(each.__code__.co_freevars != code.co_freevars for each in living):
            return None
        return code

    def _limit_seconds(self, tests: Sequence[str]) -> float:
        return 20 + 5 * sum(self.reach.seconds[name] for name in tests)

    def _try_in_fork(
        self, tests: Sequence[str], function: Function | None, file: str, code: CodeType | None
    ) -> Outcome:
        def work() -> str:
            if function is not None and code is not None:
                for each in self._functions[file, function]:
                    each.__code__ = code
            return _first_failure(self.session, [self._items[name] for name in tests])

        assert function is None or self._functions[file, function]  # collected before the fork
        answer = answer_of_fork(work, limit_seconds=self._limit_seconds(tests))
        if answer in (TIMED_OUT, DIED):
            return Outcome(TIMED_OUT if answer == TIMED_OUT else KILLED, answer)
        return Outcome(KILLED, answer) if answer else Outcome(SURVIVED)

    def _try_in_copy(self, mutant: Mutant, tests: Sequence[str]) -> Outcome:
        path = self._copy / mutant.file
        original = path.read_text()
        path.write_text(ast.unparse(mutated_tree(original, mutant.index)))
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "timeout=0"]
        words = [sys.executable, "-m", "pytest", *options, f"--basetemp={self.work / 'copied_temporary'}", *tests]
        environment = {**os.environ, "PYTHONPATH": str(self._copy), "PYTHONDONTWRITEBYTECODE": "1"}
        limit = 60 + self._limit_seconds(tests)
        try:
            done = subprocess.run(
                words, cwd=self._copy, env=environment, capture_output=True, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            return Outcome(TIMED_OUT, TIMED_OUT)
        finally:
            path.write_text(original)
            end_descendants()
        failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        return Outcome(KILLED, (failed or ["collection"])[0]) if done.returncode else Outcome(SURVIVED)

    @cached_property
    def _copy(self) -> Path:
        """A copy of the package and its tests, compiled but for the changed modules, whose file times may be equal."""
        folder = self.work / "copy"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in _COPIED:
            source = self.root / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, folder / name)
        compileall.compile_dir(folder / "runmanager", quiet=1)
        for compiled in {self._compiled(folder / file) for file in self.reach.lines}:
            compiled.unlink(missing_ok=True)
        return folder

    @staticmethod
    def _compiled(path: Path) -> Path:
        return path.parent / "__pycache__" / f"{path.stem}.{sys.implementation.cache_tag}.pyc"


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


class _FirstFailure:
    """A plugin of pytest that remembers the first test that failed."""

    test = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.test:
            self.test = report.nodeid


def _first_failure(session: pytest.Session, items: Sequence[pytest.Item]) -> str:
    """Run tests until one fails, and return its name."""
    failure = _FirstFailure()
    session.config.pluginmanager.register(failure)
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if failure.test:
            break
    return failure.test
