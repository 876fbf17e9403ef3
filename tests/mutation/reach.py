"""Which test reaches which line: a run of the unchanged tests under coverage.py, each with a context of its own."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import coverage
import msgspec
import pytest

__all__ = ["Reach", "fingerprint", "record_reach"]


class Reach(msgspec.Struct):
    """What the tests did: by name, how many seconds each took, and those that failed; by file and line, who was there.

    Lines that run only while their module is imported have no test.
    """

    fingerprint: str
    seconds: dict[str, float]
    failed: list[str]
    lines: dict[str, dict[int, list[str]]]

    def tests_of(self, file: str, lines: tuple[int, int] | None = None) -> set[str]:
        """Return the tests that reach one of these lines of a file, both included; None means any line."""
        first, last = lines or (0, 10**9)
        found = {name for line, names in self.lines.get(file, {}).items() if first <= line <= last for name in names}
        return found - set(self.failed)


@dataclass(eq=False)  # pytest keeps plugins in sets
class _Recorder:
    """A plugin of pytest: tells coverage.py whose lines come next. Shared fixtures are those of all their tests."""

    coverage: coverage.Coverage
    seconds: dict[str, float]
    failed: list[str]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        self.coverage.switch_context(_fixture_context(fixturedef))
        try:
            return (yield)
        finally:
            self.coverage.switch_context(request._pyfuncitem.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.failed.append(report.nodeid)


def _fixture_context(fixture: pytest.FixtureDef[Any]) -> str:
    return f"fixture {fixture.baseid} {fixture.argname}"


def fingerprint(root: Path, folders: Sequence[str]) -> str:
    """Return a hash of all Python files below these folders."""
    digest = hashlib.sha256()
    paths = [root / folder for folder in folders]
    files = [file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])]
    for file in sorted(files):
        digest.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def record_reach(session: pytest.Session, root: Path, files: Sequence[str], *, mark: str, into: Path) -> None:
    """Run all tests of a session once, in this process, and write a `Reach` with the fingerprint `mark` to a file."""
    measured = coverage.Coverage(
        data_file=None, config_file=False, include=[str(root / file) for file in files], messages=False
    )
    measured.set_option("run:disable_warnings", ["no-data-collected"])  # tests may reach none of the files
    recorder = _Recorder(measured, {}, [])
    session.config.pluginmanager.register(recorder)
    measured.start()
    for item, following in zip(session.items, [*session.items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    measured.stop()
    tests_of = _tests_by_context(session.items)
    data = measured.get_data()
    lines = {
        file: {
            line: sorted({name for context in contexts for name in tests_of.get(context, ())})
            for line, contexts in data.contexts_by_lineno(str(root / file)).items()
        }
        for file in files
    }
    reach = Reach(mark, recorder.seconds, recorder.failed, lines)
    into.write_text(json.dumps(msgspec.to_builtins(reach, str_keys=True)))


def _tests_by_context(items: Sequence[pytest.Item]) -> Mapping[str, set[str]]:
    tests: dict[str, set[str]] = defaultdict(set)
    for item in items:
        tests[item.nodeid].add(item.nodeid)
        for fixtures in item._fixtureinfo.name2fixturedefs.values():
            for each in fixtures:
                tests[_fixture_context(each)].add(item.nodeid)
    return tests
