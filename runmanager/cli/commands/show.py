"""`runmanager show`: everything about one run."""

from runmanager.cli.arguments import RunName, RunSettings, read_named_run
from runmanager.cli.printing import print_text

__all__ = ["show"]


def show(run: RunName, settings: RunSettings = None) -> None:
    """Show everything about one run: settings, state, epochs, times, environment, notes, files, log and error."""
    from runmanager.results.report.run_details import run_headline, run_sections
    from runmanager.results.table_model.sections import format_sections

    stored = read_named_run(run, settings)
    print_text(format_sections(run_headline(stored), run_sections(stored)))
