"""Fuzz one parser until a processor time is used up, in a process that is forked for it.

The fuzzer (atheris, which steers libFuzzer by the branches that an input reaches) ends its process in its own way, so
what came of it goes to a file.
"""

import hashlib
import io
import json
import os
import time
from contextlib import redirect_stderr
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import atheris

from .limits import finding_of, limited_memory
from .mutation import mutated

_WATCHED = ["runmanager", "hydra.core.override_parser", "yaml"]

with redirect_stderr(io.StringIO()), atheris.instrument_imports(include=_WATCHED):  # it names each module
    from .corpus import corpus_folder, still_broken
    from .targets import TARGETS

__all__ = ["fuzz_target"]

_MAX_BYTES = 16_384
_LIBRARY = ("-timeout=120", "-report_slow_units=1000000", f"-max_len={_MAX_BYTES}", "-verbosity=0")
"""The timeout is for code that is not Python's; a slow unit may only be one of a busy machine."""


class _Fuzzing:
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


def fuzz_target(name: str, *, seconds: float, learned: Path, report: Path) -> None:
    """Fuzz a target; never returns. `learned` is the folder of the inputs that reach new branches."""
    target = TARGETS[name]
    with TemporaryDirectory() as of_seeds, TemporaryDirectory() as folder:
        learned.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(target.seeds(Path(of_seeds))):
            (learned / f"seed-{number}").write_bytes(data)
        with redirect_stderr(io.StringIO()), atheris.instrument_imports(include=_WATCHED):  # imported on first use
            read = target.prepare(Path(folder))
        num_open = sum(not label.startswith("seed ") for label, _ in still_broken(name, target))
        fuzzing = _Fuzzing(name, seconds, report, read)
        fuzzing.num_open = num_open
        fuzzing.write()
        corpus_folder(name).mkdir(parents=True, exist_ok=True)  # for inputs that end the process
        options = ["fuzz", *_LIBRARY, f"-artifact_prefix={corpus_folder(name)}/", str(learned)]
        atheris.Setup(options, fuzzing.one, **({"custom_mutator": _mutate} if target.is_json else {}))
        with limited_memory():
            atheris.Fuzz()


def _mutate(data: bytes, max_size: int, seed: int) -> bytes:
    changed = mutated(data, seed=seed, of_bytes=lambda data: bytes(atheris.Mutate(data, max_size)))
    return changed if len(changed) <= max_size else data
