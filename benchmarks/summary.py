"""Summary tables of the benchmarks page, from its rows: all budgets, and all comparisons with other tools.

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
    """Format two tables from the rows of each script: rows with a budget, and other comparisons with ours."""
    budgets = ("what", "measured", "budget", "met", "script")
    comparisons = ("other / ours", "ratio", "ours is", "script")
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
    """Return which side is faster, if the whole interval agrees."""
    ratio = _RATIO.fullmatch(row.ratio)
    if ratio is None:
        return row.ours  # skipped, with the reason
    if float(ratio["low"]) > 1:
        return "faster"
    return "slower" if float(ratio["high"]) < 1 else "no different within the noise"


def _table(heading: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join([*heading_lines(heading), *map(table_line, lines)])


def main() -> None:
    """Print the tables and, with --write, update the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the tables to the page")
    options = parser.parse_args()
    text = summary(read_rows(BENCHMARKS))
    print(text)
    if options.write:
        write_section(BENCHMARKS, _NAME, text)


if __name__ == "__main__":
    main()
