"""Whether two runs were made with the same code: by the digests of its files, else by its commit."""

from collections.abc import Iterable, Sequence

from runmanager.records.run.record import Environment

__all__ = ["changed_files", "describe_files", "is_same_code"]

_SAID_FILES = 3


def changed_files(environments: Iterable[Environment]) -> list[str]:
    """The files of code that runs had in common, and that were not the same in all of them.

    A file that a run did not have says nothing: another setting may have led to other code.
    """
    digests: dict[str, set[str]] = {}
    for environment in environments:
        for name, digest in (environment.code or {}).items():
            digests.setdefault(name, set()).add(digest)
    return [name for name, found in digests.items() if len(found) > 1]


def is_same_code(one: Environment, other: Environment) -> bool | None:
    """Whether two runs with the same settings had the same code; None where that is not known.

    Where its digests are not known, one commit without changes is the same code; another commit may be another text
    of something else.
    """
    if one.code is not None and other.code is not None:
        return not changed_files((one, other))
    is_one_commit = one.commit is not None and one.commit == other.commit
    return True if is_one_commit and False not in (one.commit_clean, other.commit_clean) else None


def describe_files(files: Sequence[str]) -> str:
    """The names of files in a line."""
    more = len(files) - _SAID_FILES
    return ", ".join(files[:_SAID_FILES]) + (f" and {more} more" if more > 0 else "")
