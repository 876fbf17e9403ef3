"""The page's first tables, gathered from the rows that stand on it: every budget, and every comparison with others.

python -m benchmarks.summary --write
"""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.page import BENCHMARKS, read_rows, write_section
from benchmarks.rows import Row, heading_lines, table_line

__all__ = ["summary"]

_NAME = "summary"
_AGAINST_OURS = re.compile(r" / ours\b")
_RATIO = re.compile(r"(?P<value>\S+) \((?P<low>\S+) to (?P<high>\S+)\)")


def summary(rows: Mapping[str, Sequence[Row]]) -> str:
    """Two tables from the rows of each script: what has a budget, and what else is compared with ours."""
    budgets = ("what", "found", "budget", "met", "measured by")
    comparisons = ("other / ours", "ratio", "ours is", "measured by")
    return f"{_table(budgets, list(_budgets(rows)))}\n\n{_table(comparisons, list(_comparisons(rows)))}\n"


def _budgets(rows: Mapping[str, Sequence[Row]]) -> Iterator[tuple[str, ...]]:
    for name, found in rows.items():
        if not found and name != _NAME:
            yield "-", "not measured yet", "-", "-", f"`{name}`"
        for row in found:
            if row.budget != "-":
                yield row.what, row.ours if row.ratio == "-" else row.ratio, row.budget, row.met, f"`{name}`"


def _comparisons(rows: Mapping[str, Sequence[Row]]) -> Iterator[tuple[str, ...]]:
    for name, found in rows.items():
        for row in found:
            if row.budget == "-" and _AGAINST_OURS.search(row.what):
                yield row.what, row.ratio, _verdict(row), f"`{name}`"


def _verdict(row: Row) -> str:
    """Which side is faster, where the whole interval says so."""
    ratio = _RATIO.fullmatch(row.ratio)
    if ratio is None:
        return row.ours  # it was left out, and why
    if float(ratio["low"]) > 1:
        return "faster"
    return "slower" if float(ratio["high"]) < 1 else "no different within the noise"


def _table(heading: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join([*heading_lines(heading), *map(table_line, lines)])


def main() -> None:
    """Show the tables, and with --write put them on the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write them into the documents")
    options = parser.parse_args()
    text = summary(read_rows(BENCHMARKS))
    print(text)
    if options.write:
        write_section(BENCHMARKS, _NAME, text)


if __name__ == "__main__":
    main()
