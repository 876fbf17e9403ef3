"""Small changes of a module that its tests should notice: one operator, number, text or statement at a time."""

import ast
import dataclasses
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Function", "Mutant", "find_mutants", "mutated_tree"]

_COMPARISONS: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_PLAIN_CONDITIONS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.NamedExpr)
_DECLARATIONS = ("annotation", "returns", "ctx", "decorator_list")


@dataclass(frozen=True)
class Function:
    """A function of a module, or a method of one of its classes, as its code object names it."""

    name: str
    first_line: int


@dataclass(frozen=True)
class Mutant:
    """A change of a file, and the statement that has it.

    `index` counts the changes of the file. `lines` are the first and the last one of the statement, without its body.
    `function` is the outermost function around the change; None if importing the module already carries it out.
    """

    file: str
    index: int
    scope: str
    before: str
    after: str
    lines: tuple[int, int]
    function: Function | None
    key: str


@dataclass(frozen=True)
class _Place:
    scope: tuple[str, ...] = ()
    function: Function | None = None
    statement: ast.stmt | None = None


@dataclass(frozen=True)
class _Slot:
    """Where a part of a syntax tree stands: the field of a node, or the position in a list."""

    owner: Any
    at: str | int

    def put(self, part: object) -> None:
        if isinstance(self.at, str):
            setattr(self.owner, self.at, part)
        else:
            self.owner[self.at] = part

    def get(self) -> Any:
        return getattr(self.owner, self.at) if isinstance(self.at, str) else self.owner[self.at]


@dataclass(frozen=True)
class _Site:
    place: _Place
    slot: _Slot
    part: object


def find_mutants(root: Path, file: str) -> list[Mutant]:
    """Return every change of a file below `root`, in the order of its lines.

    The key of a change stays as long as its statement, and the name of the function around it.
    """
    found: list[Mutant] = []
    met: Counter[str] = Counter()
    for index, site in enumerate(list(_sites(ast.parse((root / file).read_text())))):
        before, after = _before_and_after(site)
        scope = ".".join(site.place.scope)
        identity = "\n".join((file, scope, before, after))
        met[identity] += 1
        key = hashlib.sha256(f"{identity}\n{met[identity]}".encode()).hexdigest()[:12]
        statement = site.place.statement
        assert statement is not None
        found.append(Mutant(file, index, scope, before, after, _lines(statement), site.place.function, key))
    return found


def mutated_tree(text: str, index: int) -> ast.Module:
    """Return the syntax tree of a module with its change number `index`."""
    tree = ast.parse(text)
    site = list(_sites(tree))[index]
    site.slot.put(site.part)
    return ast.fix_missing_locations(tree)


def _before_and_after(site: _Site) -> tuple[str, str]:
    """Return the statement without and with the change, in one line each."""
    original, statement = site.slot.get(), site.place.statement
    assert statement is not None
    before = _headline(statement)
    if original is statement:
        assert isinstance(site.part, ast.stmt)
        return before, _headline(site.part)
    site.slot.put(site.part)
    after = _headline(statement)
    site.slot.put(original)
    return before, after


def _headline(statement: ast.stmt) -> str:
    """Return a statement as code in one line, of a compound one its first line."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        fields = {**dict(ast.iter_fields(statement)), "body": [ast.Pass()], "decorator_list": []}
        return ast.unparse(ast.fix_missing_locations(type(statement)(**fields))).splitlines()[0]
    lines = ast.unparse(statement).splitlines()
    return lines[0] if hasattr(statement, "body") else " ".join(lines)


def _lines(statement: ast.stmt) -> tuple[int, int]:
    body = getattr(statement, "body", None)
    last = max(statement.lineno, body[0].lineno - 1) if body else statement.end_lineno or statement.lineno
    return statement.lineno, last


def _sites(tree: ast.Module) -> Iterator[_Site]:
    return _walk(_Slot([tree], 0), _Place())


def _walk(slot: _Slot, place: _Place) -> Iterator[_Site]:
    node = slot.get()
    if _is_left_out(node):
        return
    if isinstance(node, ast.stmt):
        place = dataclasses.replace(place, statement=node)
    for changed, part in _changes(node, slot):
        yield _Site(place, changed, part)
    for field, child in _children(node):
        yield from _walk(child, _place_of(node, field, place))


def _place_of(node: ast.AST, field: str, place: _Place) -> _Place:
    """Return the place of a part: calls run the body of a function, the import of its module runs its defaults."""
    if not isinstance(node, ast.FunctionDef | ast.ClassDef) or field != "body":
        return place
    scope = (*place.scope, node.name)
    if isinstance(node, ast.ClassDef) or place.function is not None:
        return dataclasses.replace(place, scope=scope)
    first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
    return dataclasses.replace(place, scope=scope, function=Function(".".join(scope), first))


def _children(node: ast.AST) -> Iterator[tuple[str, _Slot]]:
    for field, value in ast.iter_fields(node):
        if field in _DECLARATIONS or (isinstance(node, ast.ClassDef) and field != "body"):
            continue
        if isinstance(value, ast.AST):
            yield field, _Slot(node, field)
        elif isinstance(value, list):
            for position, each in enumerate(value):
                if isinstance(each, ast.AST):
                    yield field, _Slot(value, position)


def _is_left_out(node: ast.AST) -> bool:
    """Whether a part cannot change what a test sees: invariants, types, documentation; or is a formatted text."""
    match node:
        case ast.Assert() | ast.JoinedStr() | ast.Expr(value=ast.Constant()) | ast.keyword(arg="strict"):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.Subscript(value=ast.Name(id="Literal" | "Annotated")) | ast.Call(func=ast.Name(id="cast")):
            return True
    return False


def _changes(node: ast.AST, slot: _Slot) -> Iterator[tuple[_Slot, object]]:
    """Yield the changes of a part: what is put where; `slot` holds the part itself."""
    match node:
        case ast.Compare():
            for position, operator in enumerate(node.ops):
                yield _Slot(node.ops, position), _COMPARISONS[type(operator)]()
        case ast.BoolOp(op=operator):
            yield _Slot(node, "op"), ast.Or() if isinstance(operator, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield slot, operand
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in _ARITHMETIC:
            yield _Slot(node, "op"), _ARITHMETIC[type(operator)]()
        case ast.Constant(value=value):
            if (other := _other_value(value)) != value:
                yield slot, _at(node, ast.Constant(other))
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if isinstance(test, _PLAIN_CONDITIONS):
            yield _Slot(node, "test"), _negated(test)
        case ast.comprehension(ifs=conditions):
            for position, test in enumerate(conditions):
                if isinstance(test, _PLAIN_CONDITIONS):
                    yield _Slot(conditions, position), _negated(test)
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield _Slot(node, "value"), _at(value, ast.Constant(None))
        case ast.Expr(value=ast.Call()):
            yield slot, _at(node, ast.Pass())
        case ast.Break():
            yield slot, _at(node, ast.Continue())
        case ast.Continue():
            yield slot, _at(node, ast.Break())
        case ast.Call(func=ast.Name(id=name) as called) if name in _CALLS:
            yield _Slot(called, "id"), _CALLS[name]


def _at(node: ast.AST, new: ast.AST) -> ast.AST:
    return ast.copy_location(new, node)


def _negated(test: ast.expr) -> ast.AST:
    return _at(test, ast.UnaryOp(ast.Not(), test))


def _other_value(value: object) -> object:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return 2 * value or 1.0
        case str():
            return f"{value}~"
    return value
