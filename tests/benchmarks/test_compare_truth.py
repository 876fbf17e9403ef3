"""The simulation of docs/measurement_evidence.md: it runs completely and covers added noise models."""

import numpy as np
import pytest

from benchmarks import compare_truth, noise_models


def test_every_part_yields_rows_and_version_01_results_belong_to_existing_rows(monkeypatch):
    monkeypatch.setattr(compare_truth, "DEVIATIONS", (0.0, 0.01))
    monkeypatch.setattr(compare_truth, "MAX_RUNS", 5)
    rows = [row for part in compare_truth.PARTS for row in part(4)]
    names = [row.what for row in rows]
    assert len(set(names)) == len(names)
    assert set(compare_truth.BEFORE) <= set(names)
    for row in rows:
        assert row.wanted and row.now and str(row).count("|") == 6


@pytest.mark.parametrize("name", noise_models.MODELS)
def test_model_has_the_requested_deviation_between_runs(name):
    model, shape = noise_models.MODELS[name], (4000, 2)
    quiet, loud = (model(np.random.default_rng(1), deviation, shape) for deviation in (0.0, 0.5))
    assert quiet.shape == (*shape, noise_models.EPOCHS)
    assert np.std(np.median(loud, axis=-1)) == pytest.approx(np.hypot(0.5, np.std(np.median(quiet, axis=-1))), rel=0.05)
    assert np.median(quiet) == pytest.approx(0, abs=0.01)


def test_added_model_is_simulated(monkeypatch):
    monkeypatch.setitem(noise_models.MODELS, "none", lambda generator, deviation, shape: np.zeros((*shape, 10)))
    cells = compare_truth.simulate_cells("none", 0.01, 2)
    assert all(cell.covered == 1 and cell.false == 0 for of_design in cells.values() for cell in of_design.values())
