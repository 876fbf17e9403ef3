"""How many values a YAML document stands for: aliases and merges let a few lines stand for billions."""

import yaml

__all__ = ["require_few_values"]


def require_few_values(document: yaml.Node | None, *, most: int) -> None:
    """Check a composed document before its values are built; what is shared counts each time.

    Raises `ValueError` for more than `most` values, and for a value that contains itself.
    """
    if document is not None and _num_values(document, {}) > most:
        raise ValueError(f"it must hold at most {most:,} values, got more")


def _num_values(node: yaml.Node, known: dict[int, int | None]) -> int:
    number = known.setdefault(id(node), None)
    if number is not None:
        return number
    parts: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        parts = [
            each for pair in node.value for each in pair if each is pair[1] or isinstance(each, yaml.CollectionNode)
        ]
    elif isinstance(node, yaml.SequenceNode):
        parts = node.value
    number = 1
    for part in parts:
        if known.get(id(part), 0) is None:
            raise ValueError("a value must not contain itself")
        number += _num_values(part, known)
    known[id(node)] = number
    return number
