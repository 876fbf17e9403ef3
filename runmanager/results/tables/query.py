"""What of a results table is shown: which rows, in which order, which columns, or pivoted."""

from dataclasses import dataclass

from runmanager.errors import UsageError
from runmanager.records.storage.reader import SweepContents
from runmanager.records.sweep.record import SweepRecord
from runmanager.results.compare.pairing import SEED
from runmanager.results.load.run_summary import SweepSummary
from runmanager.results.model.columns import Table
from runmanager.results.tables.filter import Condition, parse_condition
from runmanager.results.tables.pivot import parse_pivot, pivot
from runmanager.results.tables.seeds import collapse_seeds
from runmanager.results.tables.selection import AskedTable, ask, ask_table
from runmanager.results.tables.sorting import sorted_by

__all__ = ["View"]


@dataclass(frozen=True)
class View:
    """A table as it is asked for; an empty one asks for the whole table.

    `each` wants a row a run where seeds would be one row.
    """

    where: Condition | None = None
    sort: str | None = None
    columns: tuple[str, ...] = ()
    pivot: tuple[str, str, str | None] | None = None
    each: bool = False

    @classmethod
    def read(
        cls,
        *,
        where: str | None = None,
        sort: str | None = None,
        columns: str | None = None,
        pivot: str | None = None,
        each: bool = False,
    ) -> "View":
        """The view that these options ask for. Raises `UsageError` for what cannot be read, or not go together."""
        others = (("--sort", sort), ("--columns", columns), ("--each", each or None))
        if pivot is not None and (idle := [option for option, value in others if value is not None]):
            raise UsageError(f"`--pivot` must go without `{idle[0]}`, got both; it has rows and columns of its own.")
        names = None if columns is None else tuple(name.strip() for name in columns.split(","))
        if names is not None and not all(names):
            raise UsageError(f"`--columns` must be names joined by commas, got '{columns}'; as in lr,val_accuracy.")
        return cls(
            None if where is None else parse_condition(where),
            sort,
            names or (),
            None if pivot is None else parse_pivot(pivot),
            each,
        )

    @property
    def words(self) -> tuple[str, ...]:
        """Every name that it asks for."""
        asked = self.where.words if self.where else ()
        return tuple(word for word in (*asked, self.sort, *self.columns, *(self.pivot or ())) if word)

    def of(self, sweep: SweepSummary | SweepContents, plan: SweepRecord | None, *, collapses: bool = False) -> Table:
        """The table of a sweep; where it `collapses`, runs that differ in the seed alone are one row, unless one of
        them is asked for by its seed or name.

        Raises `UsageError`, with the nearest name, for one that is neither a column nor a setting.
        """
        of_runs = {SEED, "run"} & {*self.columns, self.sort}
        collapses = collapses and not self.each and not of_runs
        return self._shown(ask(sweep, plan, self.words), collapses=collapses)

    def of_table(self, table: Table) -> Table:
        """The same of any table. Raises `UsageError`, with the nearest name, for one that is no column of it."""
        return self._shown(ask_table(table, self.words), collapses=False)

    def _shown(self, asked: AskedTable, *, collapses: bool) -> Table:
        if self.where is not None:
            asked = asked.only(self.where)
        if self.pivot is not None:
            return pivot(asked, self.pivot)
        sort = None if self.sort is None else asked.column(self.sort, "--sort")
        if collapses:
            asked = asked.changed(collapse_seeds)
        if sort is not None:
            asked = asked.changed(lambda table: sorted_by(table, sort))
        return asked.showing(self.columns, "--columns").table if self.columns else asked.table
