"""`--resume-with NAME=FILE`: a setting that a program gets from its second attempt on, where the file exists."""

import glob
import re
from dataclasses import dataclass
from pathlib import Path

from runmanager.launching.plan import Action, PlannedRun
from runmanager.records.files.paths import RunPaths

RUN_DIR = "{run_dir}"
"""What stands for the run's folder in a word of a command."""


@dataclass(frozen=True)
class ResumeSetting:
    """The setting's `name`, and the `file`, which may be a glob: of several matches the newest counts."""

    name: str
    file: str

    @classmethod
    def read(cls, word: str | None) -> "ResumeSetting | None":
        """Return the setting of NAME=FILE; None without one."""
        return None if word is None else cls(*word.split("=", 1))

    def path_in(self, run: RunPaths, *, chdir: bool = False) -> Path | None:
        """Return the file or folder to resume from, the newest by time and then by number; None if there is none.

        A relative one is below the working folder, which is the run's with `chdir`.
        """
        root = run.root.absolute()
        below = root if chdir else Path()
        path = below / self.file.replace(RUN_DIR, str(root))
        if path.exists():
            return path
        pattern = self.file.replace(RUN_DIR, glob.escape(str(root)))
        found = [below / each for each in glob.glob(pattern, root_dir=below)]  # noqa: PTH207  # of a pathlib glob no root
        return max(found, key=_age, default=None)

    def lacking(self, planned: PlannedRun, path: Path | None, *, is_again: bool) -> str:
        """Say that a run which was broken off has nothing to resume from at `path`; empty for any other run."""
        stored = planned.stored
        is_broken_off = stored is not None and stored.is_resumable
        is_broken_off &= planned.action in (Action.RESUME, Action.START_AGAIN)
        if path is not None or not (is_again or is_broken_off):
            return ""
        return f"nothing to resume from: no file matches {self.file}, so it starts without {self.name}"


def _age(path: Path) -> tuple[int, int]:
    numbers = re.findall(r"\d+", path.name)
    return path.lstat().st_mtime_ns, int(numbers[-1]) if numbers else -1
