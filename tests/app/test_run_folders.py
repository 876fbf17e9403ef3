"""Folders of new runs have plain names, and a sweep with those of earlier versions goes on."""

import re
from collections.abc import Callable
from typing import Any

from runmanager.records.settings.signature import short_signature
from runmanager.records.storage.reader import read_sweep

from ..older_sweeps import with_names_as_folders

WORDS = ("-m", "dataset=digits", "dataset.size=60", "dataset.val_size=10", "model=logistic", "batch_size=60")
WORDS += ("device=cpu", "optimizer=sgd", "scheduler=constant", "name=first")


def folders(sweep: Any) -> dict[str, str]:
    return {run.name.rpartition("-")[0]: run.folder for run in read_sweep(sweep.paths).runs}


def test_an_older_sweep_goes_on_and_new_cells_get_plain_folders(
    command: Callable[..., Any], sweep: Callable[[str], Any]
) -> None:
    done = command(*WORDS, "lr=0.1,1e-3", "epochs=1")
    assert done.status == 0, done.err
    first = sweep("first")
    assert sorted(folders(first).values()) == [
        f"lr_{lr}-{short_signature(first.record(lr=lr).signature)}" for lr in (0.001, 0.1)
    ]
    assert {"lr=0.1", "lr=0.001"} == set(re.findall(r"lr=\d+\.\d+", done.out))

    with_names_as_folders(first.paths)
    before = folders(first)
    assert all(folder.startswith(f"{name}-") for name, folder in before.items())
    assert "2 cells: 2 keep" in command(*WORDS, "lr=0.1,1e-3", "epochs=1", "--dry-run").out
    done = command(*WORDS, "lr=0.1,0.3", "epochs=1,2")
    assert done.status == 0, done.err
    after = folders(first)
    assert before.items() < after.items()
    new = {name: folder.rpartition("-")[0] for name, folder in after.items() if name not in before}
    assert new == {name: name.replace("=", "_").replace(",", "-") for name in new}
    longer = first.record(lr=0.1, epochs=2)
    assert longer.continued_from == first.record(lr=0.1, epochs=1).name
    assert {row["run"] for row in first.rows()} == {record.name for record in first.records}
