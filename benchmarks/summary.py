"""Summary of the benchmarks page, from its rows: how many budgets are met, and which are not.

python -m benchmarks.summary --write
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.page import BENCHMARKS, read_rows, write_section
from benchmarks.rows import Row

__all__ = ["summary"]

_NAME = "summary"
_NAMES = {
    "yes": "met",
    "yes, within the noise": "met within the noise",
    "no, within the noise": "missed within the noise",
    "no": "missed",
}
"""Words by verdict."""


def summary(rows: Mapping[str, Sequence[Row]]) -> str:
    """Format the number of budgets by verdict, each budget that is not met, and the scripts without rows."""
    verdicts = Counter(row.met for found in rows.values() for row in found if row.budget != "-")
    counts = ", ".join(f"{verdicts[verdict]} {name}" for verdict, name in _NAMES.items() if verdict in verdicts)
    return "\n".join([f"- {sum(verdicts.values())} budgets: {counts}", *_notes(rows), ""])


def _notes(rows: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    for name, found in rows.items():
        for row in found:
            if row.met.startswith("no"):
                yield f"- {_NAMES[row.met]}: {row.what} (`{name}`)"
        if not found and name != _NAME:
            yield f"- not measured yet: `{name}`"


def main() -> None:
    """Print the summary and, with --write, update the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the summary to the page")
    options = parser.parse_args()
    text = summary(read_rows(BENCHMARKS))
    print(text)
    if options.write:
        write_section(BENCHMARKS, _NAME, text)


if __name__ == "__main__":
    main()
