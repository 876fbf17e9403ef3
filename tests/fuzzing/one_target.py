"""Fuzz one parser until a processor time is used up; started by fuzz.py, once for each.

The fuzzer (atheris, which steers libFuzzer by the branches that an input reaches) ends its process in its own way, so
what came of it goes to a file.
"""

import argparse
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import atheris

from .limits import finding_of, limited_memory
from .mutation import mutated

with atheris.instrument_imports(include=["runmanager", "hydra.core.override_parser", "yaml"]):
    from .corpus import corpus_folder, still_broken
    from .targets import TARGETS

_MAX_BYTES = 16_384
_LIBRARY = ("-timeout=120", f"-max_len={_MAX_BYTES}", "-verbosity=0")  # the timeout is for code that is not Python's


class Fuzzing:
    """The inputs of one target, one after the other, and what they broke."""

    def __init__(self, name: str, seconds: float, report: Path, read: Any) -> None:
        self.num_open = 0
        self._folder = corpus_folder(name)
        self._seconds = seconds
        self._report = report
        self._read = read
        self._num_executions = 0
        self._known: set[tuple[str, str]] = set()
        self._began = time.process_time()

    def one(self, data: bytes) -> None:
        """Read one input; called by the fuzzer."""
        finding = finding_of(self._read, data)
        self._num_executions += 1
        if finding is not None and (finding.kind, finding.place) not in self._known:
            self._known.add((finding.kind, finding.place))
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"{finding.kind}-{hashlib.sha256(data).hexdigest()[:8]}"
            path.write_bytes(data)
            print(f"{path}: in {finding.place}: {finding.line}", flush=True)
        if time.process_time() - self._began > self._seconds:
            self.write()
            os._exit(0)  # what the fuzzer learned is in its files already

    def write(self) -> None:
        """Write what came of it so far."""
        figures = {
            "executions": self._num_executions,
            "seconds": time.process_time() - self._began,
            "new": len(self._known),
            "open": self.num_open,
        }
        self._report.write_text(json.dumps(figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--learned", type=Path, required=True, help="the folder of inputs that reach new branches")
    parser.add_argument("--report", type=Path, required=True)
    args = parser.parse_args()
    target = TARGETS[args.target]
    with TemporaryDirectory() as of_seeds, TemporaryDirectory() as folder:
        args.learned.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(target.seeds(Path(of_seeds))):
            (args.learned / f"seed-{number}").write_bytes(data)
        with atheris.instrument_imports(include=["runmanager"]):
            read = target.prepare(Path(folder))
        fuzzing = Fuzzing(args.target, args.seconds, args.report, read)
        fuzzing.num_open = sum(not label.startswith("seed ") for label, _ in still_broken(args.target, target))
        fuzzing.write()
        options = [sys.argv[0], *_LIBRARY, f"-artifact_prefix={corpus_folder(args.target)}/", str(args.learned)]
        atheris.Setup(options, fuzzing.one, **({"custom_mutator": _mutate} if target.is_json else {}))
        with limited_memory():
            atheris.Fuzz()


def _mutate(data: bytes, max_size: int, seed: int) -> bytes:
    changed = mutated(data, seed=seed, of_bytes=lambda data: bytes(atheris.Mutate(data, max_size)))
    return changed if len(changed) <= max_size else data


if __name__ == "__main__":
    main()
