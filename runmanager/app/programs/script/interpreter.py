"""The versions of another interpreter: its Python, and the libraries that decide a run's results."""

import json
import subprocess
from dataclasses import dataclass

from runmanager.errors import UsageError
from runmanager.tracking.environment.environment import LIBRARIES

__all__ = ["Versions", "ask_interpreter"]

_SECONDS = 60
_QUESTION = """
import importlib.metadata, json, platform, sys

def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None

found = {name: version(name) for name in sys.argv[1:]}
print(json.dumps([platform.python_version(), {name: each for name, each in found.items() if each is not None}]))
"""


@dataclass(frozen=True)
class Versions:
    """The version of Python, and of each installed library."""

    python: str
    libraries: dict[str, str]


def ask_interpreter(python: str) -> Versions:
    """Ask an interpreter for its versions. Raises `UsageError` if it does not answer."""
    try:
        done = subprocess.run(
            [python, "-c", _QUESTION, *LIBRARIES],
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS,
            stdin=subprocess.DEVNULL,
        )
        return Versions(*json.loads(done.stdout.splitlines()[-1]))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise UsageError(
            f"`--python` must be a Python interpreter, got {python}, which does not print its versions: {error}."
        ) from None
