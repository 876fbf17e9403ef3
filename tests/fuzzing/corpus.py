"""The inputs that once broke a promise, in corpus/<target>/, and reading them again."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from .limits import Finding, finding_of, limited_memory
from .target import Target

__all__ = ["corpus_folder", "still_broken"]


def corpus_folder(name: str) -> Path:
    """Return the folder with the findings of a target; it may not exist."""
    return Path(__file__).parent / "corpus" / name


def still_broken(name: str, target: Target) -> Iterator[tuple[str, Finding]]:
    """Read the seeds and the findings of a target again, and yield what still breaks a promise."""
    with tempfile.TemporaryDirectory() as of_seeds, tempfile.TemporaryDirectory() as folder:
        inputs = {f"seed {number}": data for number, data in enumerate(target.seeds(Path(of_seeds)))}
        inputs |= {path.name: path.read_bytes() for path in sorted(corpus_folder(name).glob("*"))}
        read = target.prepare(Path(folder))
        with limited_memory():
            found = {label: finding_of(read, data) for label, data in inputs.items()}
    yield from ((label, finding) for label, finding in found.items() if finding is not None)
