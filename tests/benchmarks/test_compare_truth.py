"""The simulation of docs/measurement_evidence.md: it runs completely, covers added noise models, and marks misses."""

import re

import numpy as np
import pytest

from benchmarks import accuracy_simulation, compare_truth, noise_models
from benchmarks.page import MEASUREMENT


def page_tables(text: str) -> dict[str, list[str]]:
    """The lines of each section of a page."""
    sections = re.findall(r"^<!-- begin (\w+) -->\n(.*?)^<!-- end \1 -->", text, re.DOTALL | re.MULTILINE)
    return {name: body.splitlines() for name, body in sections}


@pytest.fixture(autouse=True)
def rough_oracles(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (noise_models, accuracy_simulation):
        monkeypatch.setattr(module, "_ORACLE_TABLES", 100)


def test_every_table_is_complete_and_has_the_rows_of_the_page() -> None:
    page = page_tables(MEASUREMENT.read_text())
    found = dict(compare_truth.tables(3, map))
    assert found.keys() == {name for name in page if name.startswith("compare_")}
    for section, lines in found.items():
        assert len({line.count(" | ") for line in lines}) == 1
        rows = [line.split(" | ")[0] for line in lines]
        assert len(set(rows)) == len(rows)
        assert rows == [line.split(" | ")[0] for line in page[section] if line.startswith("|")]


@pytest.mark.parametrize("name", noise_models.MODELS | noise_models.KEPT_BACK)
def test_sides_of_a_model_are_equal_but_for_its_drift(name: str) -> None:
    model = (noise_models.MODELS | noise_models.KEPT_BACK)[name]
    runs = np.median(model.tables(np.random.default_rng(1), (4000, 2, 3)), axis=-1)
    assert np.mean(runs[:, 1] - runs[:, 0]) == pytest.approx(0, abs=0.01)
    if name.startswith("lognormal"):
        deviation = float(name.removeprefix("lognormal ").rstrip("%")) / 100
        assert np.std(runs) == pytest.approx(deviation, rel=0.1)
    is_first = model.times(2, 3)[0] < model.times(2, 3)[1]
    assert is_first.all()
    assert (model.times(2, 3)[0].max() < model.times(2, 3)[1].min()) == model.is_blocked


def test_a_model_that_was_kept_back_has_a_table_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = noise_models.NoiseModel(lambda generator, shape: generator.normal(0, 1e-3, (*shape, 1)))
    monkeypatch.setattr(compare_truth, "KEPT_BACK", {"quiet": quiet})
    monkeypatch.setattr(compare_truth, "MODELS", dict.fromkeys(compare_truth.POWER_OF, quiet))
    monkeypatch.setattr(compare_truth, "PARTS", {})
    found = dict(compare_truth.tables(2, map))
    assert [line.split(" | ")[0] for line in found["compare_kept_back"][2:]] == ["| quiet"]


def test_a_missed_target_is_bold() -> None:
    cells = [compare_truth.Cell(0.92, 1.6, 0.07, 0.5, {}) for _ in compare_truth.RUNS]
    assert compare_truth.noise_line("lognormal 1%", cells) == (
        "lognormal 1%",
        [*["92.0% 1.60"] * 2, "**92.0%** 1.60", *["**92.0%** **1.60**"] * 2, "**92.0%** 1.60", "**7.0%**"],
        "widths 2.0, 1.5, 1.4",
    )
