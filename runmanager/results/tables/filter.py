"""`--where`: which rows of a table are meant, from a small expression over its columns. It runs no code."""

import ast
import difflib
import operator
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runmanager.errors import UsageError

__all__ = ["AVAILABLE_COLUMNS_HINT", "Condition", "parse_condition"]

AVAILABLE_COLUMNS_HINT = "`runmanager table SWEEP --format csv` has every column, `runmanager show RUN` every setting."
_LONGEST = 200  # characters of it that an error repeats
_DEEPEST = 50  # conditions in one another: nobody writes so many, and Python follows no more than some hundreds
_WAY_OUT = "as in 'device==cuda and lr<0.1'"
_TOO_DEEP = f"more than {_DEEPEST} parts of it are in one another"
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, several: value in several,
    ast.NotIn: lambda value, several: value not in several,
}
_ORDERINGS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_NULL = object()  # asked for by name: the setting or figure that a row has not
_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|`(?P<name>[^`]*)`""")
_WORDS = {"true": True, "false": False, "null": _NULL}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Condition:
    """A condition as it was read: `words` are the unquoted names in it, of which some may be columns."""

    text: str
    words: tuple[str, ...]
    _tree: ast.expr

    def over(self, columns: Mapping[str, str], *, known: Sequence[str] = ()) -> Callable[[Row], bool]:
        """The condition as a question to a row.

        `columns` has the column of each word that means one; the other words are text. A comparison with a missing
        value (None) is false, whatever it asks. Raises `UsageError`, with the nearest of the `known` names, for a word
        that must be a column and is none.
        """
        _check(self._tree, columns, known)
        return lambda row: _holds(self._tree, row, columns)


def parse_condition(text: str) -> Condition:
    """Read a condition: comparisons (`0.001 < lr < 0.1`, `device in [cpu, cuda]`), `and`, `or`, `not`, parentheses.

    A name that holds more than letters, digits, `_`, dots and slashes stands in backticks, as `` `val loss` ``.
    Raises `UsageError` for anything else.
    """
    names: dict[str, str] = {}
    code = _QUOTED.sub(lambda found: _stand_in(found, names), text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what reads oddly, as in 0.1and
            tree = ast.parse(code.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise _unreadable(text, _cause(text)) from None
    except (RecursionError, MemoryError):
        raise _unreadable(text, _TOO_DEEP) from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
    words: dict[str, None] = {}
    try:
        _read(tree, text, words)
    except RecursionError:  # a name or a sum of thousands of parts
        raise _unreadable(text, _TOO_DEEP) from None
    return Condition(text, tuple(words), tree)


def _stand_in(found: re.Match[str], names: dict[str, str]) -> str:
    """A name that Python's parser takes in place of one in backticks; a text in quotes as it is."""
    if found["name"] is None:
        return found[0]
    word = f"_in_backticks_{len(names)}_"
    names[word] = found["name"]
    return f" {word} "


def _unreadable(text: str, cause: str) -> UsageError:
    shown = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return UsageError(f"`--where` must be a condition, got {shown!r}: {cause}; {_WAY_OUT}.")


def _cause(text: str) -> str:
    if re.search(r"[^=<>!]=[^=]", text):
        return "equality is written =="
    if re.search(r"&&|\|\||\b(AND|OR|NOT)\b", text):
        return "conditions are joined by and, or, not"
    return (
        "it breaks off, a value like 'cuda:1' or '2026-11-01' lacks its quotes, or a name like `val loss` its backticks"
    )


def _read(node: ast.expr, text: str, words: dict[str, None], *, depth: int = 0, is_operand: bool = False) -> None:
    """Collect the words, and refuse what a condition does not have; conditions are no values, so none compares them."""
    if depth > _DEEPEST:
        raise _unreadable(text, _TOO_DEEP)
    of_values = isinstance(node, ast.Compare | ast.List | ast.Tuple)
    if isinstance(node, ast.BoolOp) and not is_operand:
        parts: Sequence[ast.expr] = node.values
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and not is_operand:
        parts = [node.operand]
    elif isinstance(node, ast.Compare) and not is_operand:
        if any(type(each) not in _COMPARISONS for each in node.ops):
            raise _unreadable(text, "`is` is no comparison of it")
        parts = [node.left, *node.comparators]
        for how, what in zip(node.ops, node.comparators, strict=True):
            if _is_member_of_one(how, what):
                raise _unreadable(text, "`in` needs a list like [100, 1000]")
    elif isinstance(node, ast.List | ast.Tuple):
        parts = node.elts
    elif (word := _word(node)) is not None:
        words[word] = None
        return
    elif _is_constant(node):
        return
    else:
        raise _unreadable(text, f"{ast.unparse(node)[:_LONGEST]!r} is neither a comparison, a column nor a value")
    for part in parts:
        _read(part, text, words, depth=depth + 1, is_operand=of_values)


def _is_member_of_one(how: ast.cmpop, what: ast.expr) -> bool:
    """Whether something is looked for in a number or in `null`, and not in a list or a text."""
    is_one = isinstance(what, ast.Constant) and not isinstance(what.value, str)
    return isinstance(how, ast.In | ast.NotIn) and (is_one or _word(what) == "null")


def _word(node: ast.expr) -> str | None:
    """`model.name` of a name or of names joined by dots, `val/loss` of a tag; None of anything else.

    Python's None is `null` too.
    """
    if isinstance(node, ast.Constant) and node.value is None:
        return "null"
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _word(node.value)) is not None:
        return f"{before}.{node.attr}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        parts = _word(node.left), _word(node.right)
        return None if None in parts else "/".join(map(str, parts))
    return None


def _is_constant(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        return isinstance(node.operand, ast.Constant) and type(node.operand.value) in (int, float)  # no truth value
    return isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | bool)


def _check(node: ast.expr, columns: Mapping[str, str], known: Sequence[str]) -> None:
    """Refuse words that must be columns: alone, as the only ones of a comparison, or where something is ordered."""
    if isinstance(node, ast.BoolOp):
        for part in node.values:
            _check(part, columns, known)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        _check(node.operand, columns, known)
    elif isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
        unknown = [word for each in operands if (word := _word(each)) is not None and word not in columns]
        has_column = any(_word(each) in columns for each in operands)
        is_ordered = any(isinstance(each, _ORDERINGS) for each in node.ops)
        if unknown and (not has_column or is_ordered):
            raise UsageError(_no_column(unknown, known))
        if not has_column:
            raise UsageError(f"`--where` must compare a column, got {ast.unparse(node)!r}; {_WAY_OUT}.")
    elif (word := _word(node)) is not None:
        if word not in columns:
            raise UsageError(_no_column([word], known))
    else:
        raise UsageError(f"`--where` must compare a column, got {ast.unparse(node)!r}; {_WAY_OUT}.")


def _no_column(unknown: Sequence[str], known: Sequence[str]) -> str:
    nearest = [(word, near[0]) for word in unknown if (near := difflib.get_close_matches(word, known, n=1))]
    word, hint = nearest[0] if nearest else (unknown[0], "")
    way_out = f"did you mean {hint}?" if hint else AVAILABLE_COLUMNS_HINT
    return f"`--where` must name columns or settings, got '{word}'; {way_out}"


def _holds(node: ast.expr, row: Row, columns: Mapping[str, str]) -> bool:
    if isinstance(node, ast.BoolOp):
        parts = (_holds(part, row, columns) for part in node.values)
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if isinstance(node, ast.UnaryOp):
        return not _holds(node.operand, row, columns)
    if isinstance(node, ast.Compare):
        values = [_value(each, row, columns) for each in (node.left, *node.comparators)]
        return all(_is_so(how, *pair) for how, *pair in zip(node.ops, values, values[1:], strict=False))
    return bool(_value(node, row, columns))


def _is_so(how: ast.cmpop, left: Any, right: Any) -> bool:
    if left is None or right is None:
        return _is_so_of_nothing(how, right if left is None else left)
    try:
        return bool(_COMPARISONS[type(how)](left, right))
    except TypeError:  # a word and a number have no order
        return False


def _is_so_of_nothing(how: ast.cmpop, other: Any) -> bool:
    """Whether a comparison holds where one side is missing: only where `null` was asked for."""
    if isinstance(how, ast.In):
        return isinstance(other, list) and any(each is _NULL for each in other)
    return isinstance(how, ast.Eq) and other is _NULL


def _value(node: ast.expr, row: Row, columns: Mapping[str, str]) -> Any:
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(each, row, columns) for each in node.elts]
    word = _word(node)
    if word is None:
        return ast.literal_eval(node)
    return row[columns[word]] if word in columns else _WORDS.get(word, word)
