"""The tutorials' presets reach on real data what the tutorials reached (docs/results/tutorials.md)."""

from pathlib import Path

import pytest

from runmanager import Sweep
from runmanager.app.hydra_main import main


@pytest.fixture
def sweep_of(tmp_path: Path, mnist_root: Path, monkeypatch: pytest.MonkeyPatch):
    """Run a command in this process's folder and return its sweep."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUNMANAGER_DATA", str(mnist_root))

    def run(*words: str) -> Sweep:
        assert main([*words, "name=tutorial", "--quiet"]) == 0
        return Sweep(tmp_path / "outputs" / "tutorial")

    return run


@pytest.mark.release
def test_zero_to_gans(sweep_of) -> None:
    accuracy = sweep_of("experiment=zero_to_gans").epochs.set_index("epoch")["val_accuracy"]
    assert accuracy[0] == pytest.approx(0.10, abs=0.06)  # ten classes, untrained
    assert accuracy[5] >= 0.95
    assert accuracy[10] >= 0.96


def test_logistic_regression(sweep_of) -> None:
    # The resident loader gives the same batches faster.
    accuracy = sweep_of("experiment=zero_to_gans", "model=logistic", "loader=resident").epochs.set_index("epoch")[
        "val_accuracy"
    ]
    assert 0.86 <= accuracy[10] < 0.95  # a hidden layer does better


@pytest.mark.release
def test_cnn(sweep_of) -> None:
    sweep = sweep_of("dataset=mnist", "model=cnn", "lr=0.01", "batch_size=1000", "optimizer=adam", "epochs=3")
    assert sweep.runs["val_accuracy"][0] >= 0.97
    assert sweep.runs["num_parameters"][0] == 32_998


@pytest.mark.release
def test_gpu_crossover_learns_on_cpu(sweep_of) -> None:
    words = ["-m", "experiment=gpu_crossover", "model.depth=8", "device=cpu", "seed=0,1,2,3,4"]
    best = sweep_of(*words).epochs.groupby("run")["accuracy"].max()
    assert len(best) == 5
    assert (best >= 0.98).sum() >= 4
