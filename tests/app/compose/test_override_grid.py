"""Zipped axes, points and exclusions of the built-in job: the same cells, and signatures, as single runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig

from runmanager.app.compose.cell_loader import CellLoader
from runmanager.app.compose.compose_cells import Grid, prepare_cells
from runmanager.app.compose.grid_rules import GridRules
from runmanager.app.compose.schema import conf_folder
from runmanager.app.hydra_main import _register
from runmanager.app.request.sweep_request import SweepRequest, flag_of
from runmanager.errors import ConfigurationError
from runmanager.launching.hydra_internals import version_base


@pytest.fixture(scope="module")
def composed() -> Iterator[tuple[CellLoader, DictConfig]]:
    _register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_folder()), **version_base()):
        loader = CellLoader(GlobalHydra.instance().config_loader())  # type: ignore[arg-type]
        yield loader, loader.load_configuration("config", [], RunMode.MULTIRUN)
    GlobalHydra.instance().clear()


def cells_of(composed: tuple[CellLoader, DictConfig], *words: str, **rules: Any) -> Grid:
    return prepare_cells(*composed, words, rules=GridRules.read(SweepRequest(**rules), flag_of))


@settings(max_examples=15)
@given(
    rates=st.lists(st.sampled_from([0.1, 0.02, 1e-05]), min_size=2, max_size=3, unique=True),
    models=st.lists(st.sampled_from(["cnn", "mlp"]), min_size=2, max_size=3),
    seeds=st.lists(st.integers(0, 3), min_size=1, max_size=2, unique=True),
)
def test_signatures_are_those_of_single_runs(
    composed: tuple[CellLoader, DictConfig],
    tmp_path_factory: pytest.TempPathFactory,
    rates: list[float],
    models: list[str],
    seeds: list[int],
) -> None:
    pairs = list(zip(rates, models, strict=False))
    expected = [
        cells_of(composed, f"lr={rate}", f"model={model}", f"seed={seed}").cells[0].signature
        for rate, model in pairs
        for seed in seeds
    ]
    axes = [f"lr={','.join(str(rate) for rate, _ in pairs)}", f"model={','.join(model for _, model in pairs)}"]
    seed_axis = f"seed={','.join(map(str, seeds))}"
    zipped = cells_of(composed, *axes, seed_axis, zip=["lr", "model"])
    file = tmp_path_factory.getbasetemp() / "points.csv"
    file.write_text("lr,model\n" + "".join(f"{rate},{model}\n" for rate, model in pairs))
    pointed = cells_of(composed, seed_axis, points=str(file))
    for grid in (zipped, pointed):
        assert [cell.signature for cell in grid.cells] == expected

    condition = f"lr == {rates[0]} and model == {models[0]}"
    kept = cells_of(composed, *axes, seed_axis, zip=["lr", "model"], exclude=condition) if len(pairs) > 1 else zipped
    if len(pairs) > 1:
        assert [cell.signature for cell in kept.cells] == expected[len(seeds) :]
        assert kept.num_excluded == len(seeds)


def test_a_cell_that_is_excluded_reports_no_fault(composed: tuple[CellLoader, DictConfig]) -> None:
    words = ("model=cnn,mlp", "dataset=digits,disc")
    with pytest.raises(ConfigurationError):
        cells_of(composed, *words)  # a convolution needs images
    grid = cells_of(composed, *words, exclude="model == cnn and dataset == disc")
    assert len(grid.cells) == 3 and grid.axes == {"model": ["cnn", "mlp"], "dataset": ["digits", "disc"]}
    with pytest.raises(ConfigurationError, match="got nothing_like_it"):
        cells_of(composed, "model=cnn,nothing_like_it", exclude="lr > 5")
    assert len(cells_of(composed, "model=cnn,nothing_like_it", exclude="model == nothing_like_it").cells) == 1


def test_points_are_checked_as_overrides_are(composed: tuple[CellLoader, DictConfig], tmp_path: Path) -> None:
    def faults(text: str, *words: str) -> str:
        (tmp_path / "points.yaml").write_text(text)
        with pytest.raises(ConfigurationError) as error:
            cells_of(composed, *words, points=str(tmp_path / "points.yaml"))
        return str(error.value)

    assert "`rl`" in faults("[{rl: 1}]")
    assert "both" in faults("[{lr: 1}, {lr: 2}]", "lr=3")
    assert "one of Hydra's" in faults("[{hydra.launcher.workers: 2}]")
    assert "`name` must have one value" in faults("[{name: a}, {name: b}]")
    assert "`lr` must be a number" in faults("[{lr: '1,2'}]")
    assert "`metrics` must be given by its parts, as metrics.NAME=value" in faults("[{metrics: foo}]")
    assert "`model.hidden` must be a list, as [1,2]" in faults("[{model: mlp, model.hidden: x}]")


def test_a_condition_that_holds_for_all_cells_is_refused(composed: tuple[CellLoader, DictConfig]) -> None:
    with pytest.raises(ConfigurationError, match="leave at least one cell, got a condition that holds for all 2"):
        cells_of(composed, "lr=1,2", exclude="lr > 0")


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("lr=range(0.1,0.4,0.1)", [0.1, 0.2, 0.3]),
        ("lr=range(0.4,0.1,-0.1)", [0.4, 0.3, 0.2]),
        ("lr=sort(range(0.1,0.4,0.1),reverse=true)", [0.3, 0.2, 0.1]),
        ("lr=range(1,2,0.5)", [1.0, 1.5]),
        ("seed=range(1,7,2)", [1, 3, 5]),
    ],
)
def test_a_range_has_the_values_that_its_numbers_say(
    composed: tuple[CellLoader, DictConfig], word: str, values: list[float]
) -> None:
    grid = cells_of(composed, word)
    name = word.partition("=")[0]
    assert [cell.config[name] for cell in grid.cells] == values
    assert grid.axes == {name: values}
    shuffled = cells_of(composed, f"{name}=shuffle({word.partition('=')[2]})")
    assert sorted(cell.config[name] for cell in shuffled.cells) == sorted(values)
