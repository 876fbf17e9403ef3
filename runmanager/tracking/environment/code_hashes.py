"""Hashes of the user's own source files that a run uses. Imports no torch and executes none of the code.

User code is what lies below the program's folder (that of the main script, else the current folder) and is not
installed. Installed packages are identified by their versions, which records list only for a few: the module of a
target is therefore hashed even if it is installed.
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
from runmanager.text import encodable
from runmanager.tracking.environment.environment import LIBRARIES
from runmanager.tracking.environment.program_code import ImportScanner, is_below, program_folder

_NUM_DIGITS = 16

_first_digests: dict[str, str] = {}
"""Digest of each file when this process first read it: a loaded module stays as it was then."""


def hash_user_code(settings: Mapping[str, Any], *, is_built_in: bool) -> dict[str, str] | None:
    """Hash each user file that a run with these settings uses, in its present state.

    These are the modules of its targets with their imports and, unless the job `is_built_in`, the process's main
    script with its imports and all modules loaded so far. Names are relative to the program's folder, absolute for
    files outside it. None if the code is unknown: a target does not exist, a file is unreadable, or no script exists,
    as in a notebook.
    """
    folder = _code_folder(is_built_in=is_built_in)
    if folder is None:
        return None
    scanner = ImportScanner(dict.fromkeys((folder, str(Path.cwd()))))
    if not is_built_in:
        _add_program(scanner, sys.modules["__main__"])
        if not scanner.files:
            return None
    targets = (str(target) for _, target in find_targets(settings))
    if not all(scanner.add_target(target) for target in targets if target.partition(".")[0] not in LIBRARIES):
        return None
    return _hash_files(scanner.files, folder)


def hash_script(script: Path, package: str, folders: Sequence[str], *, relative_to: Path) -> dict[str, str] | None:
    """Hash a script that another process runs, and the files below `folders` that it imports, in their present state.

    `package` is that of a script run with `-m`. Names are relative to a folder, absolute for files outside it. None if
    a file is unreadable, or if the script lies outside the folders.
    """
    scanner = ImportScanner(folders)
    scanner.add_script(str(script), package)
    return _hash_files(scanner.files, str(relative_to)) if scanner.files else None


class LateImports:
    """User files that this process loads from now on, including imports that scanning the source does not find."""

    def __init__(self, *, is_built_in: bool) -> None:
        self._folder = _code_folder(is_built_in=is_built_in)
        self._before = set(_loaded_files())
        self._since = time.time()

    def added_to(self, code: Mapping[str, str] | None) -> dict[str, str] | None:
        """Return `code`, from `hash_user_code`, with the files loaded since.

        None if unknown: `code` is None, or a late file was written after the start, so that its loaded text may differ.
        """
        if code is None or self._folder is None:
            return None
        outside = (str(Path(name).parent) for name in code if Path(name).is_absolute())
        scanner = ImportScanner(dict.fromkeys((self._folder, str(Path.cwd()), *outside)))
        for file in set(_loaded_files()) - self._before:
            scanner.add_file(file)
        late = _hash_files(scanner.files, self._folder)
        if late is None or any(_is_newer(Path(self._folder, name), self._since) for name in late.keys() - code.keys()):
            return None
        return dict(sorted({**late, **code}.items()))


def _is_newer(file: Path, moment: float) -> bool:
    """Return whether a file was written after a moment (seconds since 1970) or has gone."""
    try:
        return file.stat().st_mtime > moment
    except OSError:
        return True


def _code_folder(*, is_built_in: bool) -> str | None:
    return str(Path.cwd()) if is_built_in else program_folder()


def _add_program(scanner: ImportScanner, main: ModuleType) -> None:
    package = getattr(main.__spec__, "parent", None) or ""
    scanner.add_script(str(main.__file__), package)
    for file in _loaded_files():
        scanner.add_file(file)


def _loaded_files() -> list[str]:
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    files = [file for module in modules if isinstance(file := vars(module).get("__file__"), str)]
    return [os.path.normpath(file) if os.pardir in file else file for file in files]


def _hash_files(files: Collection[str], folder: str) -> dict[str, str] | None:
    loaded = set(_loaded_files()) if files else set()  # takes a millisecond
    code = {}
    for file in sorted(files):
        if file not in loaded or file not in _first_digests:
            try:
                _first_digests[file] = _hash_file(Path(file))
            except OSError:
                return None
        name = str(Path(file).relative_to(folder)) if is_below(file, folder) else file
        if encodable(name) != name:  # a record cannot have the name, so the file could not be found again
            return None
        code[name] = _first_digests[file]
    return code


def _hash_file(file: Path) -> str:
    if not file.is_file():  # a record may name a device, whose content never ends
        raise FileNotFoundError(file)
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()[:_NUM_DIGITS]


class CodeRehasher:
    """Hashes the files of recorded runs in their present state, below a folder; reads each file once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._digests: dict[str, str] = {}

    def rehash(self, code: Mapping[str, str] | None) -> dict[str, str] | None:
        """Return the present digest of each file in `code`, empty if the file has gone.

        None if `code` is None, or if all files are missing: then the folder is not that of the code.
        """
        if code is None:
            return None
        present = {name: self._digest(name) for name in code}
        return present if any(present.values()) or not present else None

    def _digest(self, name: str) -> str:
        if name not in self._digests:
            try:
                self._digests[name] = _hash_file(self._folder / name)
            except OSError:
                self._digests[name] = ""
        return self._digests[name]


def rehash_code(code: Mapping[str, str] | None, command: Sequence[str]) -> dict[str, str] | None:
    """Hash a run's files in their present state, below the folder of the script in its command or the current one."""
    scripts = [Path(word).resolve().parent for word in command[:1] if word.endswith(".py")]
    found = (CodeRehasher(folder).rehash(code) for folder in (*scripts, Path.cwd()))
    return next((present for present in found if present is not None), None)
