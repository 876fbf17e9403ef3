"""Conditions on the rows of a table (`--where`): parsed, checked and evaluated without executing code.

An expression library would not make this module shorter, as most of it implements rules that such libraries lack:
unquoted words are columns or texts, dotted names and tags are columns, comparisons with missing values are false, and
errors name the nearest column. `pandas.eval` would also make `table` import pandas, and it allows method calls.
"""

import ast
import operator
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runmanager.errors import UsageError
from runmanager.results.table_model.columns import Row
from runmanager.validation import did_you_mean

AVAILABLE_COLUMNS_HINT = "`runmanager table SWEEP --format csv` has every column, `runmanager show RUN` every setting."
_MAX_QUOTED = 200  # characters of a condition that an error message repeats
_MAX_DEPTH = 50  # of nested conditions, far below Python's recursion limit
_EXAMPLE = "as in 'device==cuda and lr<0.1'"
_TOO_DEEP = f"more than {_MAX_DEPTH} of its parts are nested"
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, values: value in values,
    ast.NotIn: lambda value, values: value not in values,
}
_ORDERINGS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_NULL = object()  # the value of the word `null`, which equals missing values
_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|`(?P<name>[^`]*)`""")
_LITERALS = {"true": True, "false": False, "null": _NULL}


@dataclass(frozen=True)
class Condition:
    """A parsed condition; `words` are its unquoted names, some of which may be columns."""

    text: str
    words: tuple[str, ...]
    _tree: ast.expr

    def over(self, columns: Mapping[str, str], *, known: Sequence[str] = ()) -> Callable[[Row], bool]:
        """A function that tests whether a row meets the condition.

        `columns` maps the words that refer to columns to these; other words are texts. Every comparison with a missing
        value (None) is false. Raises `UsageError`, with the nearest of the `known` names, if a word must be a column
        but does not refer to one.
        """
        _check_columns(self._tree, columns, known)
        return lambda row: _holds(self._tree, row, columns)


def parse_condition(text: str) -> Condition:
    """Parse comparisons (`0.001 < lr < 0.1`, `device in [cpu, cuda]`) joined by `and`, `or`, `not` and parentheses.

    A name with characters other than letters, digits, `_`, `.`, `/` and `@` is written in backticks: `` `val loss` ``.
    Raises `UsageError` for anything else.
    """
    names: dict[str, str] = {}
    code = _QUOTED.sub(lambda match: _placeholder(match, names), text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about missing spaces, as in 0.1and
            tree = ast.parse(code.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise _invalid(text, _likely_cause(text)) from None
    except (RecursionError, MemoryError):
        raise _invalid(text, _TOO_DEEP) from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
    words: dict[str, None] = {}
    try:
        _validate(tree, text, words)
    except RecursionError:  # a name or a sum with thousands of parts
        raise _invalid(text, _TOO_DEEP) from None
    return Condition(text, tuple(words), tree)


def _placeholder(match: re.Match[str], names: dict[str, str]) -> str:
    """A valid Python identifier for a name in backticks, which is added to `names`; quoted text stays unchanged."""
    if match["name"] is None:
        return match[0]
    word = f"_in_backticks_{len(names)}_"
    names[word] = match["name"]
    return f" {word} "


def _invalid(text: str, cause: str) -> UsageError:
    shown = text if len(text) <= _MAX_QUOTED else f"{text[: _MAX_QUOTED - 1]}…"
    return UsageError(f"`--where` must be a condition, got {shown!r}: {cause}; {_EXAMPLE}.")


def _likely_cause(text: str) -> str:
    if re.search(r"[^=<>!]=[^=]", text):
        return "equality is written =="
    if re.search(r"&&|\|\||\b(AND|OR|NOT)\b", text):
        return "conditions are joined by and, or, not"
    return (
        "it is incomplete, a value like 'cuda:1' or '2026-11-01' lacks quotes, or a name like `val loss` "
        "lacks backticks"
    )


def _validate(node: ast.expr, text: str, words: dict[str, None], *, depth: int = 0, is_operand: bool = False) -> None:
    """Collect the words, and reject all but values, comparisons of values, and conditions joined by and, or, not."""
    if depth > _MAX_DEPTH:
        raise _invalid(text, _TOO_DEEP)
    has_operands = isinstance(node, ast.Compare | ast.List | ast.Tuple)
    if isinstance(node, ast.BoolOp) and not is_operand:
        parts: Sequence[ast.expr] = node.values
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and not is_operand:
        parts = [node.operand]
    elif isinstance(node, ast.Compare) and not is_operand:
        if any(type(operator_) not in _COMPARISONS for operator_ in node.ops):
            raise _invalid(text, "`is` is not supported")
        parts = [node.left, *node.comparators]
        for operator_, operand in zip(node.ops, node.comparators, strict=True):
            if _is_in_without_list(operator_, operand):
                raise _invalid(text, "`in` needs a list like [100, 1000]")
    elif isinstance(node, ast.List | ast.Tuple):
        parts = node.elts
    elif (word := _word(node)) is not None:
        words[word] = None
        return
    elif _is_constant(node):
        return
    else:
        code = _code_of(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            raise _invalid(text, f"{code!r} is a difference; a name with a dash is written {code.replace(' - ', '_')}")
        raise _invalid(text, f"{code!r} is neither a comparison, a column nor a value")
    for part in parts:
        _validate(part, text, words, depth=depth + 1, is_operand=has_operands)


def _code_of(node: ast.expr) -> str:
    """Return a part of a condition for a message."""
    try:
        return ast.unparse(node)[:_MAX_QUOTED]
    except ValueError:  # a hexadecimal number with too many digits for a decimal one
        return "a number with thousands of digits"


def _is_in_without_list(operator_: ast.cmpop, operand: ast.expr) -> bool:
    """Whether the comparison is `in` or `not in` with a number or `null` instead of a list or a text."""
    is_number = isinstance(operand, ast.Constant) and not isinstance(operand.value, str)
    return isinstance(operator_, ast.In | ast.NotIn) and (is_number or _word(operand) == "null")


def _word(node: ast.expr) -> str | None:
    """The text of a name, of names joined by `.`, `/` or `@` (`model.name`, `val/loss`, `model@net`), else None.

    Python's None is the word `null`.
    """
    if isinstance(node, ast.Constant) and node.value is None:
        return "null"
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _word(node.value)) is not None:
        return f"{before}.{node.attr}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.MatMult):
        parts = _word(node.left), _word(node.right)
        return None if None in parts else ("/" if isinstance(node.op, ast.Div) else "@").join(map(str, parts))
    return None


def _is_constant(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        return isinstance(node.operand, ast.Constant) and type(node.operand.value) in (int, float)  # not bool
    return isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | bool)


def _check_columns(node: ast.expr, columns: Mapping[str, str], known: Sequence[str]) -> None:
    """Require a column where a word stands alone, in every comparison, and for each word of `<`, `<=`, `>`, `>=`."""
    if isinstance(node, ast.BoolOp):
        for part in node.values:
            _check_columns(part, columns, known)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        _check_columns(node.operand, columns, known)
    elif isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
        unknown = [word for each in operands if (word := _word(each)) is not None and word not in columns]
        has_column = any(_word(each) in columns for each in operands)
        is_ordered = any(isinstance(each, _ORDERINGS) for each in node.ops)
        if unknown and (not has_column or is_ordered):
            raise UsageError(_unknown_column(unknown, known))
        if not has_column:
            raise UsageError(f"`--where` must compare a column, got {_code_of(node)!r}; {_EXAMPLE}.")
    elif (word := _word(node)) is not None:
        if word not in columns:
            raise UsageError(_unknown_column([word], known))
    else:
        raise UsageError(f"`--where` must compare a column, got {_code_of(node)!r}; {_EXAMPLE}.")


def _unknown_column(unknown: Sequence[str], known: Sequence[str]) -> str:
    hints = [(word, hint) for word in unknown if (hint := did_you_mean(word, known, max_names=1))]
    word, way_out = hints[0] if hints else (unknown[0], AVAILABLE_COLUMNS_HINT)
    return f"`--where` must name columns or settings, got '{word}'; {way_out}"


def _holds(node: ast.expr, row: Row, columns: Mapping[str, str]) -> bool:
    if isinstance(node, ast.BoolOp):
        parts = (_holds(part, row, columns) for part in node.values)
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if isinstance(node, ast.UnaryOp):
        return not _holds(node.operand, row, columns)
    if isinstance(node, ast.Compare):
        values = [_value(each, row, columns) for each in (node.left, *node.comparators)]
        return all(_compare(operator_, *pair) for operator_, *pair in zip(node.ops, values, values[1:], strict=False))
    return bool(_value(node, row, columns))


def _compare(operator_: ast.cmpop, left: Any, right: Any) -> bool:
    if left is None or right is None:
        return _compare_missing(operator_, right if left is None else left)
    try:
        return bool(_COMPARISONS[type(operator_)](left, right))
    except TypeError:  # a text and a number cannot be ordered
        return False


def _compare_missing(operator_: ast.cmpop, other: Any) -> bool:
    """Whether a comparison of a missing value holds: only `== null`, and `in` with a list that contains null."""
    if isinstance(operator_, ast.In):
        return isinstance(other, list) and any(each is _NULL for each in other)
    return isinstance(operator_, ast.Eq) and other is _NULL


def _value(node: ast.expr, row: Row, columns: Mapping[str, str]) -> Any:
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(each, row, columns) for each in node.elts]
    word = _word(node)
    if word is None:
        return ast.literal_eval(node)
    return row[columns[word]] if word in columns else _LITERALS.get(word, word)
