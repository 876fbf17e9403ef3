"""The user's own code that a run is made with: a hash of each of its files. Loads no torch, and runs none of the code.

Own is what lies below the program's folder, which is that of the main script, else the current one, and is not
installed. Installed packages are known by their versions, but for the module of a target, which has none in a record.
"""

import hashlib
import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from runmanager.records.settings.values import find_targets
from runmanager.tracking.environment.import_walk import ImportWalk, is_below, is_installed

__all__ = ["CurrentCode", "LoadedLater", "current_code", "own_code"]

_DIGITS = 16

_at_loading: dict[str, str] = {}
"""The digests of files as they were when this process first met them: a module that is loaded stays what it was."""


def own_code(settings: Mapping[str, Any], *, is_built_in: bool) -> dict[str, str] | None:
    """The digest of each file of code that a run with these settings is made with, as the files are now.

    These are the modules of its targets and what they import; unless it `is_built_in`, the process's main script with
    its imports too, and what is loaded already. Names are relative to the program's folder, absolute outside of it.
    None where the code is not known: a target is not found, a file cannot be read, or there is no script, as in a
    notebook.
    """
    folder = _folder_of_run(is_built_in=is_built_in)
    if folder is None:
        return None
    walk = ImportWalk(dict.fromkeys((folder, str(Path.cwd()))))
    if not is_built_in:
        _take_program(walk, sys.modules["__main__"])
        if not walk.files:
            return None
    if not all(walk.take_target(str(target)) for _, target in find_targets(settings)):
        return None
    return _digests(walk.files, folder)


class LoadedLater:
    """The own files that this process loads from now on: those too that a run imports in ways that no reading finds."""

    def __init__(self, *, is_built_in: bool) -> None:
        self._folder = _folder_of_run(is_built_in=is_built_in)
        self._before = set(_loaded_files())
        self._since = time.time()

    def added_to(self, code: Mapping[str, str] | None) -> dict[str, str] | None:
        """`code`, as `own_code` gave it, with them.

        None where it is not known: nor is the text of a file that was written meanwhile, before it was loaded or after.
        """
        if code is None or self._folder is None:
            return None
        outside = (str(Path(name).parent) for name in code if Path(name).is_absolute())
        walk = ImportWalk(dict.fromkeys((self._folder, str(Path.cwd()), *outside)))
        for file in set(_loaded_files()) - self._before:
            walk.take_file(file)
        later = _digests(walk.files, self._folder)
        if later is None or any(
            _is_newer(Path(self._folder, name), self._since) for name in later.keys() - code.keys()
        ):
            return None
        return dict(sorted({**later, **code}.items()))


def _is_newer(file: Path, moment: float) -> bool:
    """Whether a file was written after a moment (s since 1970), or is gone since."""
    try:
        return file.stat().st_mtime > moment
    except OSError:
        return True


def _folder_of_run(*, is_built_in: bool) -> str | None:
    return str(Path.cwd()) if is_built_in else _folder_of_program()


def _folder_of_program() -> str | None:
    main = sys.modules.get("__main__")
    script = getattr(main, "__file__", None)
    if script is None:
        return None
    is_elsewhere = getattr(main, "__spec__", None) or is_installed(script)  # `python -m`, or an installed command
    return str(Path.cwd() if is_elsewhere else Path(script).resolve().parent)


def _take_program(walk: ImportWalk, main: ModuleType) -> None:
    package = getattr(main.__spec__, "parent", None) or ""
    walk.take_script(str(main.__file__), package)
    for file in _loaded_files():
        walk.take_file(file)


def _loaded_files() -> list[str]:
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    files = [file for module in modules if isinstance(file := vars(module).get("__file__"), str)]
    return [os.path.normpath(file) if os.pardir in file else file for file in files]


def _digests(files: Collection[str], folder: str) -> dict[str, str] | None:
    loaded = set(_loaded_files()) if files else set()  # takes a millisecond
    code = {}
    for file in sorted(files):
        if file not in loaded or file not in _at_loading:
            try:
                _at_loading[file] = _digest_of(Path(file))
            except OSError:
                return None
        code[str(Path(file).relative_to(folder)) if is_below(file, folder) else file] = _at_loading[file]
    return code


def _digest_of(file: Path) -> str:
    if not file.is_file():  # a record may name anything, and a device has no end
        raise FileNotFoundError(file)
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()[:_DIGITS]


class CurrentCode:
    """What the files of runs hold today, below a folder; each is read once, however many runs were made with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._digests: dict[str, str] = {}

    def of(self, code: Mapping[str, str] | None) -> dict[str, str] | None:
        """The digest of each of these files now, empty for one that is gone.

        None where they are not known, or none is there: then this is not their folder.
        """
        if code is None:
            return None
        today = {name: self._digest(name) for name in code}
        return today if any(today.values()) or not today else None

    def _digest(self, name: str) -> str:
        if name not in self._digests:
            try:
                self._digests[name] = _digest_of(self._folder / name)
            except OSError:
                self._digests[name] = ""
        return self._digests[name]


def current_code(code: Mapping[str, str] | None, command: Sequence[str]) -> dict[str, str] | None:
    """The same for one run: in the folder of the script that its command names, else in the current one."""
    scripts = [Path(word).resolve().parent for word in command[:1] if word.endswith(".py")]
    found = (CurrentCode(folder).of(code) for folder in (*scripts, Path.cwd()))
    return next((today for today in found if today is not None), None)
