"""Say what this machine lacks for benchmarks/gpu.sh, without importing it: `python -m benchmarks.gpu_needs`."""

import importlib.metadata
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement

__all__ = ["lacking"]

_PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
_OF_CHECKS = ("hypothesis", "pytest", "pytest-timeout")


def lacking(requirements: Iterable[str]) -> Iterator[str]:
    """Yield each requirement that is not met here, with the version that is here."""
    for requirement in map(Requirement, requirements):
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        try:
            found = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            found = "none"
        if found == "none" or not requirement.specifier.contains(found, prereleases=True):
            yield f"{requirement.name}{requirement.specifier} ({found})"


def main() -> None:
    """Print what is lacking, and fail if anything is."""
    project = tomllib.loads(_PROJECT.read_text())["project"]
    extras = project["optional-dependencies"]
    of_checks = [each for each in extras["dev"] if Requirement(each).name in _OF_CHECKS]
    if faults := list(lacking([*project["dependencies"], *extras["gpu"], *of_checks])):
        sys.exit(
            f"error: this machine must have {', '.join(faults)}; gather them where there is a network, by `make "
            "gpu-wheels`, and what that leaves out by `pip download`, and carry the folder gpu-wheels/ along."
        )


if __name__ == "__main__":
    main()
