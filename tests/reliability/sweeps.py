"""Small sweeps whose cells do what their `model.way` says, and what the table tells of them."""

from pathlib import Path

from runmanager.records.files.paths import SweepPaths
from runmanager.results.load.loader import read_results
from runmanager.results.tables.results_table import result_rows

DYING = Path(__file__).with_name("dying.py")
"""The model; a sweep wants it as `own.py` in the folder where its command is given."""

TINY = (
    *("dataset=fake", "dataset.size=64", "dataset.val_size=32", "batch_size=32", "epochs=2", "device=cpu"),
    *("tensorboard.enabled=false", "model=custom", "model._target_=own.Net"),
)


def states_of(sweep: SweepPaths) -> dict[str, tuple[str, str | None]]:
    """What `runmanager table` says of each cell, by its `model.way`: status and reason."""
    rows = result_rows(*read_results(sweep)).rows
    return {row["model.way"]: (row["status"], row["reason"]) for row in rows}
