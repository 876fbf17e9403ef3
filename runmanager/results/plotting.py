"""A sweep's figure for somebody who asks for it by name, in a notebook or a program."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from runmanager.errors import UsageError
from runmanager.validation import did_you_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from runmanager.results.figures.figure import Drawn

__all__ = ["choose_figure", "drawn_in_notebook"]


def choose_figure(figures: "Sequence[Drawn]", name: str | None) -> "Drawn":
    """The figure of that name; without one the first. Raises `UsageError` where there is none."""
    if not figures:
        raise UsageError("A plot must have something to show, got a sweep without a measured epoch; wait for one.")
    if name is None:
        return figures[0]
    known = {figure.name: figure for figure in figures}
    if name in known:
        return known[name]
    hint = did_you_mean(name, known, max_names=1) or "choose one of these."
    raise UsageError(f"A plot must be one that the sweep has ({', '.join(known)}), got '{name}'; {hint}")


def drawn_in_notebook(figure: "Drawn") -> "Figure":
    """The figure drawn; where a notebook asks, one that the page shows.

    IPython knows how to show a figure only once pyplot was imported there, which ours do without.
    """
    from matplotlib.figure import Figure

    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is not None:
        formatters = shell.display_formatter.formatters.values()
        if not any(Figure in formatter.type_printers for formatter in formatters):
            from IPython.core.pylabtools import select_figure_formats

            select_figure_formats(shell, {"png"})
    return figure.draw()
