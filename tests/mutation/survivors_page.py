"""docs/mutants.md: how many changes the tests noticed, and each one that they did not, with what was seen of it."""

import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from mutations import Mutant
from trials import KILLED, NOT_REACHED, TIMED_OUT, Outcome

sys.path.append(str(Path(__file__).resolve().parents[1] / "reliability"))
from page import write_row

__all__ = ["write_page"]

_CONTEXT = 30  # characters around what differs
_NOTICED = (KILLED, TIMED_OUT)
_HEAD = """# Changes that the tests must notice

`make test-mutants` makes small changes in `records/`, the statistics, comparisons and metrics of `results/`, and the
best cell, one at a time, and runs the tests that reach the changed lines, for at most ten seconds, until one fails. A
change that makes tests run on and on is noticed too.

A change takes another operator (`<` and `<=`, `and` and `or`, `+` and `-`, `min` and `max`, …), drops a `not` or a
sign, turns a condition around, changes a number, a truth value or a text, returns None, or leaves out a call.

Of {chosen} chosen changes {tried} were tried. Tests were written for those that went unnoticed at first, so the shares
below do not say how many other ones the tests would notice.
{others}
"""
_OTHERS = (
    "At commit 982bfed7, `python tests/mutation/mutants.py --count 120 --seed 1` chose 104 changes besides 16 of these "
    "600; before a test was written for any of them, the tests noticed 80 (77%)."
)


def write_page(root: Path, mutants: Sequence[Mutant], outcomes: Mapping[str, Outcome]) -> None:
    """Write the page, and its row in docs/reliability.md."""
    tried = [each for each in mutants if each.key in outcomes]
    rest = [each for each in tried if outcomes[each.key].word not in _NOTICED]
    reasons = tomllib.loads((root / "tests" / "mutation" / "survivors.toml").read_text())
    all_of_them = _counts("all", tried, outcomes)
    lines = [
        _HEAD.format(chosen=len(mutants), tried=len(tried), others=_OTHERS),
        "| part | changes | noticed | share |",
        "| --- | ---: | ---: | ---: |",
    ]
    for part in sorted({_part(each) for each in tried}):
        lines.append(_counts(f"`{part}`", [each for each in tried if _part(each) == part], outcomes))
    lines += [
        all_of_them,
        "",
        "## Not noticed",
        "",
        "| where | changed to | why |",
        "| --- | --- | --- |",
    ]
    for each in sorted(rest, key=lambda each: (each.file, each.index)):
        _, after = _difference(each.before, each.after)
        why = reasons.get(each.key) or ("no test reaches it" if outcomes[each.key].word == NOT_REACHED else "")
        where = f"`{each.file.removeprefix('runmanager/')}` {_code(each.scope) if each.scope else ''}".strip()
        lines.append(f"| {where} | {_code(after)} | {why} |")
    (root / "docs" / "mutants.md").write_text("\n".join(lines) + "\n")
    noticed = len(tried) - len(rest)
    came = f"the tests noticed {noticed} ({noticed / max(len(tried), 1):.1%}); [the others](mutants.md)"
    row = (
        f"| {len(tried):,} small changes of stored records, statistics and comparisons | {came} | `make test-mutants` |"
    )
    write_row(root / "docs" / "reliability.md", "[0-9,]+ small changes", row)


def _part(mutant: Mutant) -> str:
    return "/".join(Path(mutant.file).parts[1:3])


def _counts(name: str, mutants: Sequence[Mutant], outcomes: Mapping[str, Outcome]) -> str:
    words = [outcomes[each.key].word for each in mutants]
    noticed = _count(words, _NOTICED)
    return f"| {name} | {len(words)} | {noticed} | {noticed / max(len(words), 1):.0%} |"


def _count(words: Iterable[str], wanted: Sequence[str]) -> int:
    return sum(word in wanted for word in words)


def _difference(before: str, after: str) -> tuple[str, str]:
    """Return where two lines differ, with a few characters around it."""
    start = _num_common(before, after)
    end = _num_common(before[start:][::-1], after[start:][::-1])
    return _around(before, start, end), _around(after, start, end)


def _num_common(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _around(text: str, start: int, end: int) -> str:
    first, last = max(0, start - _CONTEXT), len(text) - max(0, end - _CONTEXT)
    return ("…" if first else "") + text[first:last].strip() + ("…" if last < len(text) else "")


def _code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    space = " " if "`" in text else ""
    return f"{fence}{space}{text}{space}{fence}".replace("|", "\\|")
