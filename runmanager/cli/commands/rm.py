"""`runmanager rm`, `mv`, `tag` and `note`: sweeps and runs into the trash, renamed, and labelled."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from runmanager.cli.arguments import SweepName, Target, complete_targets
from runmanager.cli.printing import print_text
from runmanager.errors import RecordError, UsageError
from runmanager.records.files.file_errors import require_writable
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.storage.labels import Labels, add_tags, remove_tags, set_note
from runmanager.records.sweep.lookup import OUTPUT_ROOT, find_sweep, find_sweep_or_run
from runmanager.text import pluralize


def rm(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="SWEEP|RUN",
            help="A sweep or a run: a folder, a sweep's name under outputs/, SWEEP/RUN, or the beginning of a run.",
            autocompletion=complete_targets,
        ),
    ] = None,
    empty_trash: Annotated[
        bool, typer.Option("--empty-trash", help="Delete for good what was removed before.")
    ] = False,
    output_root: Annotated[
        Path | None, typer.Option(help="With --empty-trash: the folder of the sweeps. Default: outputs.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Move a sweep or a run into the trash, OUTPUT_ROOT/.trash. Nothing that may be alive is touched.

    A rerun of the sweep leaves a removed cell out unless it is given `--restore` (of a Hydra application
    `hydra.sweeper.restore=true`, of a custom loop `overwrite=True`).
    """
    if (target is None) != empty_trash:
        raise UsageError("`rm` must have either a SWEEP or RUN, or `--empty-trash`, got " + _got(target) + ".")
    if output_root is not None and not empty_trash:
        raise UsageError("`--output-root` must go with `--empty-trash`, got it alone; give the sweep's folder.")
    if target is None:
        _empty(output_root or OUTPUT_ROOT, yes=yes)
    else:
        _remove(find_sweep_or_run(target), yes=yes)


def _got(target: str | None) -> str:
    return "neither" if target is None else "both"


def _remove(found: SweepPaths | RunPaths, *, yes: bool) -> None:
    from runmanager.app.manage.sweep_folders import remove_run, remove_sweep, require_rest
    from runmanager.records.storage.reader import run_names

    require_rest(found.sweep, found) if isinstance(found, RunPaths) else require_rest(found)
    what = str(found.root)
    if isinstance(found, SweepPaths):
        what += f" with {pluralize(len(run_names(found)), 'run')}"
    _confirm(f"Move {what} into the trash?", yes=yes)
    again = _way_back(found) if isinstance(found, RunPaths) else ""
    with require_writable("SWEEP", found.root.parent, way_out="what is removed is moved, not deleted"):
        target = remove_run(found) if isinstance(found, RunPaths) else remove_sweep(found)
    if isinstance(found, RunPaths):
        _rebuild(found.sweep)
    print_text(f"{found.root} is now in {target}{'; ' if again else ''}{again}.\n")


def _way_back(run: RunPaths) -> str:
    """How the cell of a run that is removed runs again, as the end of a sentence; empty where that is not known."""
    from runmanager.records.run.program_report import kind_of_program, restored_with
    from runmanager.records.storage.reader import read_record

    try:
        return restored_with({kind_of_program(read_record(run))}, "its cell")
    except RecordError:
        return ""


def _rebuild(sweep: SweepPaths) -> None:
    """Rebuild the tables of a sweep, where it has any, as they still have what was removed."""
    from runmanager.results.result_files import write_tables

    if sweep.results("csv").exists():
        write_tables(sweep, report=sweep.report.exists())


def _empty(output_root: Path, *, yes: bool) -> None:
    from runmanager.app.manage.sweep_folders import empty_trash, trash_of

    trash = trash_of(output_root)
    removals = sorted(each.name for each in trash.iterdir()) if trash.is_dir() else []
    if not removals:
        print_text(f"There is nothing in {trash}.\n")
        return
    _confirm(f"Delete {pluralize(len(removals), 'removal')} in {trash} for good?", yes=yes)
    with require_writable("OUTPUT_ROOT", output_root, way_out="nothing else is deleted"):
        empty_trash(output_root)
    print_text(f"{trash} is deleted.\n")


def _confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal. Raises `UsageError` for any answer but yes, and where there is none."""
    if yes:
        return
    print_text(f"{question} [y/N] ")
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print_text("\n")
    if answer.strip().lower() not in ("y", "yes"):
        raise UsageError("Nothing was removed; `--yes` does not ask.")


def mv(
    sweep: SweepName, name: Annotated[str, typer.Argument(metavar="NAME", help="The new name, in the same folder.")]
) -> None:
    """Rename a sweep. Its command, with the new name, continues it. A sweep that may be alive is not touched."""
    from runmanager.app.manage.sweep_folders import continued_with, rename_sweep
    from runmanager.results.result_files import write_tables

    paths = find_sweep(sweep)
    with require_writable("SWEEP", paths.root.parent, way_out="a sweep is renamed in its folder"):
        renamed = rename_sweep(paths, name)
    if renamed.results("csv").exists():
        write_tables(renamed, report=renamed.report.exists())  # they have the old name
    again = continued_with(renamed)
    print_text(f"{paths.root} is now {renamed.root}{'; ' if again else ''}{again}.\n")


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
