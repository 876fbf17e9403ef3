"""`runmanager show` and `diff`: everything about one run, or what differs between two."""

from runmanager.cli.arguments import RunFormat, RunFormatOption, RunName, RunSettings, read_named_run
from runmanager.cli.printing import print_json, print_text, wrap_lines
from runmanager.text import printable_line

__all__ = ["diff", "show"]


def diff(one: RunName, other: RunName, format_: RunFormatOption = RunFormat.TEXT) -> None:
    """Show what differs between two runs: settings, code, packages, hardware, metrics. Equal values are left out."""
    from runmanager.results.findings.run_diff import diff_runs, difference_sections, difference_to_json
    from runmanager.results.table_model.sections import format_sections

    sides = read_named_run(one), read_named_run(other)
    if format_ is RunFormat.JSON:
        print_json(difference_to_json(*sides))
        return
    found = diff_runs(*sides)
    roots = (printable_line(str(side.paths.root)) for side in sides)
    first = "\n".join(f"{name}: {root}" for name, root in zip(("one", "other"), roots, strict=True))
    if not found:
        print_text(f"{first}\n\nNothing differs.\n")
        return
    print_text(format_sections(first, difference_sections(found, names=("one", "other"))))
    if any(each.is_measured for each in found):
        caution = "One run each, so a difference may be noise; `runmanager compare` shows which differences are not."
        print_text(f"\n{wrap_lines(caution)}\n")


def show(run: RunName, settings: RunSettings = None) -> None:
    """Show everything about one run: settings, state, epochs, times, environment, notes, files, log and error."""
    from runmanager.results.report.run_details import run_headline, run_sections
    from runmanager.results.table_model.sections import format_sections

    stored = read_named_run(run, settings)
    print_text(format_sections(run_headline(stored), run_sections(stored)))
