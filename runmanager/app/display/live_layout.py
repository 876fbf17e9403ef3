"""The layout of a live table, which follows the terminal's width and what its runs record."""

from collections.abc import Collection

from runmanager.app.display.live_table import RESULTS, Layout, LiveRow, used_headings, values_of

__all__ = ["LiveLayout"]


class LiveLayout:
    """The columns that the rows noted so far need; all of them until one row has a result.

    `labels` are those of the runs. Logged metrics have columns where there is room, the requested `metric` first.
    """

    def __init__(self, *, labels: Collection[str] = (), metric: str | None = None) -> None:
        # The widest decide, with names and without; a large sweep is not gone through again for each row.
        self._labels = {max(labels, key=key) for key in (len, lambda label: len(values_of(label)))} if labels else ()
        self._requested = metric
        self._logged: dict[str, None] = {}
        self._used: set[str] = set()
        self._counted: set[str] = set()

    def note(self, row: LiveRow) -> None:
        """Keep which columns this row needs."""
        self._logged |= dict.fromkeys(row.metrics)
        self._used |= used_headings(row)
        if row.epoch is not None:
            self._counted.add(row.counted)

    def fitting(self, width: int) -> Layout:
        """Return the layout for a terminal of `width` characters."""
        return Layout.fitting(
            width,
            labels=self._labels,
            logged=tuple(self._logged),  # a copy, as a thread redraws the table
            requested=self._requested,
            unused=RESULTS - self._used if self._used & RESULTS or self._logged else (),
            counted="step" if self._counted == {"step"} else "epoch",
        )
