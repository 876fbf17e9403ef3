"""Small sweeps whose cells die as their `model.way` demands, and their states in the table."""

from pathlib import Path

from runmanager.records.files.paths import SweepPaths
from runmanager.results.load.loader import read_results
from runmanager.results.tables.results_table import result_rows

DYING = Path(__file__).with_name("dying.py")
"""The model; copy it as `own.py` to the folder where the command of a sweep is given."""

TINY = (
    *("dataset=fake", "dataset.size=64", "dataset.val_size=32", "batch_size=32", "epochs=2", "device=cpu"),
    *("tensorboard.enabled=false", "model=custom", "model._target_=own.Net"),
)


def states_of(sweep: SweepPaths, setting: str = "model.way") -> dict[str, tuple[str, str | None]]:
    """Return status and reason of each cell in the results table, by the setting that names its way to die."""
    rows = result_rows(*read_results(sweep)).rows
    return {row[setting]: (row["status"], row["reason"]) for row in rows}
