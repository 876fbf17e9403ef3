"""`runmanager tag` and `runmanager note`: what people add to a sweep or a run."""

from typing import Annotated

import typer

from runmanager.cli.arguments import Target
from runmanager.cli.printing import print_text
from runmanager.records.files.file_errors import require_writable
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.storage.labels import Labels, add_tags, remove_tags, set_note
from runmanager.records.sweep.lookup import find_sweep_or_run

__all__ = ["note", "tag"]


def tag(
    target: Target,
    tags: Annotated[list[str], typer.Argument(metavar="TAG...", help="Words without commas.")],
    remove: Annotated[bool, typer.Option("--remove", help="Remove these tags.")] = False,
) -> None:
    """Add tags to a sweep or a run. They are shown by ls, table and report."""
    sweep, run = _place(target)
    change = remove_tags if remove else add_tags
    with require_writable("SWEEP", sweep.root, way_out="tags are kept next to the runs"):
        labels = change(sweep, run, tuple(tags))
    _print(sweep, run, labels)


def note(
    target: Target, text: Annotated[str, typer.Argument(metavar="TEXT", help="One line; an empty one removes it.")]
) -> None:
    """Set the note of a sweep or a run, in place of an earlier one. It is shown by ls, table and report."""
    sweep, run = _place(target)
    with require_writable("SWEEP", sweep.root, way_out="notes are kept next to the runs"):
        labels = set_note(sweep, run, text)
    _print(sweep, run, labels)


def _place(target: str) -> tuple[SweepPaths, str | None]:
    """The sweep of a target, and the name of the run's folder if it is one."""
    found = find_sweep_or_run(target)
    return (found.sweep, found.name) if isinstance(found, RunPaths) else (found, None)


def _print(sweep: SweepPaths, run: str | None, labels: Labels) -> None:
    where = sweep.root if run is None else sweep.run(run).root
    tags = f"tags {', '.join(labels.tags)}" if labels.tags else "no tags"
    print_text(f"{where}: {tags}; {f'note: {labels.note}' if labels.note else 'no note'}\n")
