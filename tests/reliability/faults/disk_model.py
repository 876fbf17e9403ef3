"""A disk after a power cut, from the journal of what processes did to it: what was not synced is there or not.

The model is stricter than common file systems, which keep the order of changes of folders. A file's synced content
stays; of later writes any first part does, down to a part of one write. A change of a folder's entry (creation,
renaming, removal) stays if the folder was synced afterwards; else it may be undone, alone or with others, but a rename
is never half done, and an entry's later change does not stay without its earlier ones.
"""

import os
import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Disk", "Entry", "entries_below"]


@dataclass(eq=False)
class _File:
    """A file: its content, and that of the last sync with the writes since then, as (offset, data) or (size, None)."""

    content: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    since: list[tuple[int, bytes | None]] = field(default_factory=list)

    def change(self, at: int, data: bytes | None) -> None:
        _apply(self.content, at, data)
        self.since.append((at, data))

    def sync(self) -> None:
        self.synced, self.since = bytes(self.content), []

    def after_cut(self, chance: random.Random) -> bytes:
        """Return what is left: the synced content, and the writes since then up to a random byte."""
        left = bytearray(self.synced)
        sizes = [1 if data is None else len(data) for _, data in self.since]
        room = chance.choice((0, sum(sizes), chance.randint(0, sum(sizes))))
        for (at, data), size in zip(self.since, sizes, strict=True):
            if room < size:
                if data is not None and room:
                    _apply(left, at, data[:room])
                break
            _apply(left, at, data)
            room -= size
        return bytes(left)


def _apply(content: bytearray, at: int, data: bytes | None) -> None:
    if len(content) < at:
        content.extend(bytes(at - len(content)))
    if data is None:
        del content[at:]
    else:
        content[at : at + len(data)] = data


@dataclass(eq=False)
class _Folder:
    entries: dict[str, "_File | _Folder"] = field(default_factory=dict)


_Slot = tuple[_Folder, str]


@dataclass(eq=False)
class _Change:
    """A change of entries: each slot gets a file or folder, or nothing; `is_synced` if it has survived."""

    gets: Sequence[tuple[_Slot, "_File | _Folder | None"]]
    is_synced: bool = False


Entry = tuple[str, int, bytes | None]
"""A file or folder that is there before a journal begins: path below the folder, inode, content (None: a folder)."""


def entries_below(folder: Path) -> list[Entry]:
    """Return what is in a folder, each folder before what is in it."""
    found: list[Entry] = []
    for path in sorted(folder.rglob("*")):
        name, inode = str(path.relative_to(folder)), path.stat().st_ino
        found.append((name, inode, None if path.is_dir() else path.read_bytes()))
    return found


class Disk:
    """The disk below `folder`, with these entries when the journal begins; all of them have been synced."""

    def __init__(self, folder: Path, before: Sequence[Entry] = ()) -> None:
        self._folder = os.path.realpath(folder)
        self._root = _Folder()
        self._files: dict[int, _File] = {}
        self._changes: list[_Change] = []
        for name, inode, content in before:
            path = f"{self._folder}/{name}"
            if content is None:
                self.do("mkdir", path)
            else:
                self.do("create", path, inode)
                self._files[inode].change(0, content)
                self._files[inode].sync()
        for change in self._changes:
            change.is_synced = True

    def do(self, kind: str, *words: Any) -> None:
        """Carry out one operation of the journal."""
        match kind:
            case "create":
                self._files[words[1]] = _File()
                self._change((self._slot(words[0]), self._files[words[1]]))
            case "mkdir":
                self._change((self._slot(words[0]), _Folder()))
            case "unlink" | "rmdir":
                self._change((self._slot(words[0]), None))
            case "rename":
                source = self._slot(words[0])
                self._change((source, None), (self._slot(words[1]), source[0].entries[source[1]]))
            case "write":
                self._file(words[0]).change(words[1], words[2])
            case "truncate":
                self._file(words[0]).change(words[1], None)
            case "sync":
                self._sync(words[0])

    def _change(self, *gets: tuple[_Slot, _File | _Folder | None]) -> None:
        self._changes.append(_Change(gets))
        for (folder, name), node in gets:
            folder.entries.pop(name, None)
            if node is not None:
                folder.entries[name] = node

    def _sync(self, what: str | int) -> None:
        if isinstance(what, int):
            self._file(what).sync()
            return
        synced = self._folder_at(what)
        for change in self._changes:
            change.is_synced = change.is_synced or any(folder is synced for (folder, _), _ in change.gets)

    def _file(self, inode: int) -> _File:
        return self._files.setdefault(inode, _File())  # one that was made unseen is in no folder

    def _slot(self, path: str) -> _Slot:
        parent, name = os.path.split(path)
        return self._folder_at(parent), name

    def _folder_at(self, path: str) -> _Folder:
        found: Any = self._root
        for name in Path(path).relative_to(self._folder).parts:
            found = found.entries[name]
        assert isinstance(found, _Folder)
        return found

    def write_after_cut(self, target: Path, chance: random.Random, *, names: Sequence[str]) -> None:
        """Write the entries `names` of the folder as a power cut now may leave them, in place of those in `target`."""
        left = self._entries_after_cut(chance)
        for name in names:
            if (target / name).exists():
                shutil.rmtree(target / name)
        self._write(left, self._root, target, chance)

    def _entries_after_cut(self, chance: random.Random) -> dict[_Folder, dict[str, "_File | _Folder"]]:
        must = self._surviving()
        kept_so_far = chance.choice((0.0, 0.5, 1.0))
        left: dict[_Folder, dict[str, _File | _Folder]] = {}
        broken: set[tuple[int, str]] = set()  # slots of which a change was undone
        for change in self._changes:
            slots = [(id(folder), name) for (folder, name), _ in change.gets]
            if change not in must and (broken.intersection(slots) or chance.random() >= kept_so_far):
                broken.update(slots)
                continue
            for (folder, name), node in change.gets:
                entries = left.setdefault(folder, {})
                entries.pop(name, None)
                if node is not None:
                    entries[name] = node
        return left

    def _surviving(self) -> set[_Change]:
        """Return the synced changes, and those of the same entries before them."""
        must: set[_Change] = set()
        needed: set[tuple[int, str]] = set()
        for change in reversed(self._changes):
            slots = [(id(folder), name) for (folder, name), _ in change.gets]
            if change.is_synced or needed.intersection(slots):
                must.add(change)
                needed.update(slots)
        return must

    def _write(
        self, left: dict[_Folder, dict[str, "_File | _Folder"]], folder: _Folder, target: Path, chance: random.Random
    ) -> None:
        target.mkdir(exist_ok=True)
        for name, node in left.get(folder, {}).items():
            if isinstance(node, _Folder):
                self._write(left, node, target / name, chance)
            else:
                (target / name).write_bytes(node.after_cut(chance))
