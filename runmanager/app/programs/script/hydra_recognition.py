"""Whether a script is a Hydra application, found in its source."""

import ast
from pathlib import Path

__all__ = ["is_hydra_application"]


def is_hydra_application(file: Path) -> bool:
    """Whether a source file applies `hydra.main`, as a decorator or by a call. Nothing of the file is run."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    names: set[str] = set()  # local names of `hydra.main`
    modules: set[str] = set()  # local names of the package `hydra`
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {each.asname or "hydra" for each in node.names if _is_hydra(each)}
        elif isinstance(node, ast.ImportFrom) and node.module in ("hydra", "hydra.main") and node.level == 0:
            names |= {each.asname or each.name for each in node.names if each.name == "main"}
    return any(_is_main(node.func, names, modules) for node in ast.walk(tree) if isinstance(node, ast.Call))


def _is_hydra(imported: ast.alias) -> bool:
    # `import hydra.core` binds `hydra` too; `import hydra.core as core` does not.
    return imported.name == "hydra" or (imported.name.startswith("hydra.") and imported.asname is None)


def _is_main(function: ast.expr, names: set[str], modules: set[str]) -> bool:
    match function:
        case ast.Name(id=name):
            return name in names
        case ast.Attribute(value=ast.Name(id=module), attr="main"):
            return module in modules
    return False
