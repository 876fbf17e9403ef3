"""Tags and notes of a sweep and its runs (labels.json): what people add to the records."""

import msgspec

from runmanager.errors import UsageError
from runmanager.records.files.atomic_files import locked_folder, replace_file
from runmanager.records.files.file_errors import Int64
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import SCHEMA_VERSION
from runmanager.records.storage.versioned_file import decode_file, encode_record
from runmanager.text import MAX_LINE
from runmanager.validation import fault


class Labels(msgspec.Struct, frozen=True):
    """The tags, in the order in which they were given, and the note of a sweep or a run."""

    tags: tuple[str, ...] = ()
    note: str = ""

    def with_more(self, other: "Labels") -> "Labels":
        """Return these labels and then the other ones."""
        notes = [note for note in (self.note, other.note) if note]
        return Labels(tuple(dict.fromkeys((*self.tags, *other.tags))), "; ".join(notes))


class SweepLabels(msgspec.Struct, frozen=True, kw_only=True):
    """The labels of a sweep, and those of its runs by the names of their folders."""

    schema_version: Int64 = SCHEMA_VERSION
    tags: tuple[str, ...] = ()
    note: str = ""
    runs: dict[str, Labels] = {}

    @property
    def of_sweep(self) -> Labels:
        return Labels(self.tags, self.note)

    def of(self, run: str | None) -> Labels:
        """Return the labels of the run in this folder; None is the sweep itself."""
        return self.of_sweep if run is None else self.runs.get(run, Labels())

    def changed(self, run: str | None, labels: Labels) -> "SweepLabels":
        """Return a copy with other labels of a run; None is the sweep itself."""
        if run is None:
            return msgspec.structs.replace(self, tags=labels.tags, note=labels.note)
        runs = {**self.runs, run: labels}
        return msgspec.structs.replace(self, runs={name: each for name, each in runs.items() if each != Labels()})


NO_LABELS = SweepLabels()

_DECODER = msgspec.json.Decoder(SweepLabels)


def read_labels(paths: SweepPaths) -> SweepLabels:
    """Read the labels of a sweep; without a file there are none. Raises `RecordError` for a damaged or newer one."""
    return decode_file(paths.labels, _DECODER) if paths.labels.exists() else NO_LABELS


def add_tags(paths: SweepPaths, run: str | None, tags: tuple[str, ...]) -> Labels:
    """Add tags to a run, or to the sweep if `run` is None; return its labels. Raises `UsageError`, `RecordError`."""
    if faults := [each for tag in tags for each in _tag_faults(tag)]:
        raise UsageError("\n".join(faults))
    with locked_folder(paths.root):
        return _write(paths, run, read_labels(paths).of(run).with_more(Labels(tags)))


def remove_tags(paths: SweepPaths, run: str | None, tags: tuple[str, ...]) -> Labels:
    """Remove tags from a run or from the sweep; return its labels. Raises `UsageError` for a tag that it lacks."""
    with locked_folder(paths.root):
        now = read_labels(paths).of(run)
        if missing := [tag for tag in tags if tag not in now.tags]:
            raise UsageError(f"A tag to remove must be one of {', '.join(now.tags) or 'none'}, got {missing[0]!r}.")
        return _write(paths, run, Labels(tuple(tag for tag in now.tags if tag not in tags), now.note))


def set_note(paths: SweepPaths, run: str | None, note: str) -> Labels:
    """Replace the note of a run or of the sweep, an empty one removes it; return its labels. Raises `UsageError`."""
    if not note.isprintable() or len(note) > MAX_LINE:
        raise UsageError(fault("TEXT", f"be a line of at most {MAX_LINE:,} characters", repr(note[:60])))
    with locked_folder(paths.root):
        return _write(paths, run, Labels(read_labels(paths).of(run).tags, note.strip()))


def _write(paths: SweepPaths, run: str | None, labels: Labels) -> Labels:
    replace_file(paths.labels, encode_record(read_labels(paths).changed(run, labels)))
    return labels


def _tag_faults(tag: str) -> list[str]:
    if tag and tag == tag.strip() and tag.isprintable() and "," not in tag and len(tag) <= MAX_LINE:
        return []
    return [fault("TAG", "be a word without commas", repr(tag[:60]))]
