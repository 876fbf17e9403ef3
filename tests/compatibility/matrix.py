"""Test the package with other versions of Python, PyTorch and Hydra, each in an environment of its own.

python tests/compatibility/matrix.py --write docs/reliability.md

With the environment of `make test` (Python 3.11, the newest PyTorch, Hydra 1.3) they hold every pair of PyTorch and
Hydra, Python 3.11 and 3.13 with each of both, and Python 3.14, where Hydra 1.3 does not start. An interpreter that this
machine lacks is named, and not tried. Warnings are errors, but for those that only the oldest PyTorch gives.
"""

import argparse
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv" / "matrix"
TESTS = ("tests/records", "tests/results", "tests/tracking", "tests/training", "tests/launching", "tests/cli")
HYDRA = {"1.3": ("hydra-core==1.3.*",), "1.4": ("hydra-core==1.4.0rc3", "omegaconf==2.4.1rc1")}
_FREE = ("torch", "torchvision", "hydra-core", "omegaconf", "antlr4-python3-runtime", "setuptools")
"""Pins of constraints.txt that do not hold in these environments, and what follows from them."""


@dataclass(frozen=True)
class Environment:
    """A version of Python and of Hydra, with the oldest or the newest PyTorch that is supported."""

    python: str
    torch: str
    hydra: str

    @property
    def label(self) -> str:
        return f"Python {self.python}, the {self.torch} PyTorch, Hydra {self.hydra}"

    @property
    def folder(self) -> Path:
        return FOLDER / f"{self.python}-{self.torch}-{self.hydra}"


ENVIRONMENTS = (
    Environment("3.11", "oldest", "1.4"),
    Environment("3.12", "newest", "1.4"),
    Environment("3.13", "oldest", "1.3"),
    Environment("3.13", "newest", "1.4"),
    Environment("3.14", "newest", "1.4"),
)


def interpreter(version: str) -> str | None:
    """Return the path of a Python of this version: one on the path, or one of pyenv or uv; None if there is none."""
    for path in _candidates(version):
        words = [path, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
        if _output(words) == version:
            return path
    return None


def _candidates(version: str) -> Iterator[str]:
    found = [which(f"python{version}"), _output(["uv", "python", "find", version]) if which("uv") else None]
    yield from filter(None, found)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    yield from (str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python")))


def _output(words: Sequence[str]) -> str | None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def frameworks(which_one: str) -> list[str]:
    """Return the requirements of the oldest or the newest PyTorch, from the bounds of pyproject.toml."""
    if which_one == "newest":
        lines = (ROOT / "constraints.txt").read_text().splitlines()
        return [line for line in lines if line.startswith(("torch==", "torchvision=="))]
    required = map(Requirement, tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    bounds = {
        each.name: next((str(part.version) for part in each.specifier if part.operator == ">="), "")
        for each in required
    }
    return [f"{name}=={bounds[name]}.*" for name in ("torch", "torchvision")]


def install(environment: Environment, python: str) -> Path:
    """Install the package for its tests into a new virtual environment, or into that of an earlier call."""
    own = environment.folder / "bin" / "python"
    if not own.exists():
        subprocess.run([python, "-m", "venv", environment.folder], check=True)
    pins = environment.folder / "constraints.txt"
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins.write_text("\n".join(line for line in lines if line.partition("==")[0] not in _FREE))
    wanted = [*frameworks(environment.torch), *HYDRA[environment.hydra]]
    words = [own, ROOT / "tools" / "install.py", "--quiet", "--editable", f"{ROOT}[dev]", *wanted, "--constraint", pins]
    subprocess.run(words, check=True)
    return own


def versions(python: Path) -> str:
    """Return the versions that an environment really has."""
    code = (
        "import platform; from importlib.metadata import version as of;"
        "print(platform.python_version(), of('torch'), of('hydra-core'))"
    )
    numbers = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    return "Python {}, torch {}, Hydra {}".format(*numbers)


def try_environment(environment: Environment, tests: Sequence[str]) -> tuple[bool, str]:
    """Run the tests in an environment; return whether none failed, and what to say of it."""
    python = interpreter(environment.python)
    if python is None:
        return True, f"not tried: this machine has no Python {environment.python}"
    own = install(environment, python)
    quiet = ["-o", "filterwarnings=ignore"] if environment.torch == "oldest" else []
    words = [own, "-m", "pytest", "-q", "-p", "no:cacheprovider", *quiet, *tests]
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True
    )
    print(done.stdout)
    return done.returncode == 0, f"{versions(own)}: {counts(done.stdout)}"


def counts(printed: str) -> str:
    """Return how many tests passed, failed and so on, from the last line that pytest has printed."""
    last = printed.strip().rpartition("\n")[2]
    found = re.findall(r"(\d+) (passed|failed|errors?|skipped)", last)
    return ", ".join(f"{int(count):,} {word}" for count, word in found) or "no test ended"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="the page whose rows are written")
    parser.add_argument("--only", default="", help="the environments that are tried, as 3.13 or 3.13-oldest-1.3")
    parser.add_argument("tests", nargs="*", default=TESTS, help="files and folders of tests")
    options = parser.parse_args()
    failed = 0
    for environment in ENVIRONMENTS:
        if not environment.folder.name.startswith(options.only):
            continue
        passed, came = try_environment(environment, options.tests)
        failed += not passed
        print(line := f"| {environment.label} | {came} | `make test-matrix` |")
        if options.write is not None:
            write_row(options.write, re.escape(environment.label), line)
    sys.exit(failed > 0)


if __name__ == "__main__":
    sys.path.append(str(ROOT / "tests" / "reliability"))
    from page import write_row

    main()
