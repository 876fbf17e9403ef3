"""report.html in a real browser: nothing to complain of, and nothing asked for from elsewhere."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runmanager.records.paths import SweepPaths
from runmanager.results.write import write_tables

from ..documented import example_in
from .visiting import Visiting


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with example_in(tmp_path_factory.mktemp("report")):
        paths = SweepPaths(Path("outputs/digits"))
        write_tables(paths)
        yield paths.report.resolve()


def test_report_opens_without_a_complaint_or_a_request(report: Path, visit: Visiting) -> None:
    seen = visit(report.as_uri())
    assert seen.page.title() == "digits"
    assert (seen.errors, seen.requests) == ([], [report.as_uri()])
