"""The command line of a script's sweep, as `runmanager sweep` and `runmanager run` parse it. Few imports."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["ScriptCommandLine", "ScriptFlags", "after_separator", "split_fixed"]


@dataclass(frozen=True)
class ScriptFlags:
    """The options of a script's command, by the names of their flags; see `runmanager sweep --help`."""

    module: str | None = None
    python: str | None = None
    name: str | None = None
    output_root: str = "outputs"
    scalar: list[str] = field(default_factory=list)
    metric: str | None = None
    better: str | None = None
    argument: str | None = None
    unchecked: bool = False
    unsigned: list[str] = field(default_factory=list)
    device: str | None = None
    secrets: str | None = None
    resume_with: str | None = None
    zip: list[str] = field(default_factory=list)
    points: str | None = None
    exclude: str | None = None
    save: str | None = None
    launcher: Literal["local", "slurm"] = "local"
    slurm: list[str] = field(default_factory=list)
    workers: int = 1
    gpus: str | None = None
    gpus_per_run: int | None = None
    processes: str | None = None
    timeout: float | None = None
    retries: int = 0
    resume: Literal["auto", "never", "must"] = "auto"
    rerun_changed: bool = False
    dry_run: bool = False
    quiet: bool = False
    yes: bool = False
    notify: str | None = None
    restore: bool = False

    @property
    def secret_names(self) -> list[str]:
        """The names of further secrets."""
        return [] if self.secrets is None else self.secrets.split(",")

    @property
    def zips(self) -> list[list[str]]:
        """The names of axes that advance together."""
        return [each.split(",") for each in self.zip]


@dataclass(frozen=True)
class ScriptCommandLine:
    """A parsed command: its options, the program, its settings, and the arguments after `--`.

    `words` is the whole command; `is_single` one of a single run.
    """

    flags: ScriptFlags
    program: str
    settings: tuple[str, ...]
    fixed: tuple[str, ...]
    words: tuple[str, ...]
    is_single: bool = False
    debug: bool = False

    @property
    def is_module(self) -> bool:
        return self.flags.module is not None


def after_separator(fixed: Sequence[str]) -> tuple[str, ...]:
    """Return the end of a command with these arguments of its script: `--` and the arguments, or nothing."""
    return ("--", *fixed) if fixed else ()


def split_fixed(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words of a command before the first `--`, and those after it."""
    index = words.index("--") if "--" in words else len(words)
    return list(words[:index]), list(words[index + 1 :])
