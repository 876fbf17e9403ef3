"""An outcome against the latency of inference: which cells are not beaten, and of which that is not known."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from runmanager.records.run.run_record import InferenceRecord, Measurements
from runmanager.records.storage.reader import SweepContents
from runmanager.results.figures.figure import inline_svg
from runmanager.results.sweep_snapshot import SweepSnapshot

CELLS = {  # accuracy and latency
    "large": (0.95, 0.020),
    "small": (0.90, 0.005),
    "slow": (0.90, 0.020),
    "bad": (0.80, 0.006),
}


@pytest.fixture
def sweep(contents: Callable[..., SweepContents], timed: Callable[..., Any]) -> Callable[..., SweepContents]:
    def make(noise: float, sizes: tuple[int, ...] = (1,)) -> SweepContents:
        def run(model: str, seed: int) -> Any:
            accuracy, latency = (each * (1 + noise * ((3 * seed + len(model)) % 4 - 1.5)) for each in CELLS[model])
            found = [
                InferenceRecord(
                    batch_size=size,
                    latency_p50_seconds=size * latency,
                    latency_p90_seconds=size * latency,
                    latency_p99_seconds=size * latency,
                    inference_samples_per_second=1 / latency,
                )
                for size in sizes
            ]
            epochs = [msgspec.structs.replace(each, val_accuracy=accuracy) for each in timed([9.0, 1.0])]
            return {"model": model, "seed": seed}, epochs, {"measurements": Measurements(inference=found)}

        return contents(*(run(model, seed) for seed in range(4) for model in CELLS))

    return make


def test_cells_that_no_other_beats_in_both_are_named(sweep: Callable[..., SweepContents]) -> None:
    figures = [each for each in SweepSnapshot(sweep(0.001), None).figures if each.name.startswith("trade-off")]
    (figure,) = figures
    assert figure.title == "val_accuracy against latency with batches of 1"
    assert "not beaten in both: model=large and model=small; " in figure.caption.lower(), figure.caption
    assert figure.caption.endswith("model=slow and model=bad.") and "not known" not in figure.caption
    assert "model=large: 0.95, 0.02 s" in figure.description
    assert "<svg" in inline_svg(figure)


def test_what_is_within_the_noise_is_not_known(sweep: Callable[..., SweepContents]) -> None:
    caption = next(each.caption for each in SweepSnapshot(sweep(0.2), None).figures if each.name == "trade-off")
    assert "not known to be beaten: " in caption.lower()


def test_each_batch_size_has_its_own_figure(sweep: Callable[..., SweepContents]) -> None:
    names = [each.name for each in SweepSnapshot(sweep(0.001, (1, 8)), None).figures]
    assert [name for name in names if name.startswith("trade-off")] == ["trade-off", "trade-off-2"]
