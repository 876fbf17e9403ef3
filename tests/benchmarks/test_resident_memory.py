"""Memory beside the size of the data: what a row says, and that the process behind it trains with what it names."""

from pathlib import Path

import pytest

from benchmarks import resident_memory
from benchmarks.command import Settings
from benchmarks.interleaving import Patience
from benchmarks.processes import Finished
from benchmarks.resident_run import DATA_BYTES, Samples
from runmanager.training.datasets.registry import load_dataset


def test_rows_say_how_much_is_over_a_plain_loop_in_sizes_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    over = {"plain": 0.0, "dataloader": 0.1, "resident": 1.25}

    def run_python(*words: str, folder: Path) -> Finished:
        *_, loader, data, _, device = words
        assert device == "cpu"
        return Finished(1.0, 0, f"a remark\n{1e9 + over[loader] * DATA_BYTES[data]:.0f}\n", 1.0)

    monkeypatch.setattr(resident_memory, "run_python", run_python)
    rows = resident_memory.measure(Settings(Patience(min_rounds=2, max_rounds=2), 0, False, "command"))
    assert [(row.ratio, row.budget, row.met) for row in rows] == [
        ("1.25 (1.25 to 1.25)", "at most 1.2", "no"),
        ("0.1 (0.1 to 0.1)", "-", "-"),
        ("1.25 (1.25 to 1.25)", "at most 1.2", "no"),
    ]
    assert (rows[0].other, rows[0].ours, rows[0].rounds) == ("1000 MB", "1627 MB", "2")


def test_the_sizes_are_those_of_the_data() -> None:
    settings = {"name": "custom", "_target_": f"{Samples.__module__}.{Samples.__qualname__}"}
    data = load_dataset(settings, data_root=Path("unused"), seed=0)
    image = data.train[0][0]
    assert (len(data.train) + len(data.validation)) * image.nbytes == DATA_BYTES["samples"] == DATA_BYTES["tensors"]
