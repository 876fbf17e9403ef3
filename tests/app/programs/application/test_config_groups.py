"""Config groups of Hydra applications: mandatory ones are swept as by Hydra's own sweeper."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from runmanager.app.compose.cell_loader import CellLoader
from runmanager.app.compose.grid_rules import GridRules
from runmanager.app.compose.override_grid import read_override_grid

from .conftest import Application

FILES = {
    "model/a": "{width: 3, name: a}",
    "model/b": "{width: 5, depth: 2}",
    "optimizer/sgd": "{_target_: torch.optim.SGD, momentum: 0.9}",
    "optimizer/adam": "{_target_: torch.optim.Adam, betas: [0.9, 0.99]}",
    "db/mysql/small": "{rows: 1}",
    "db/mysql/big": "{rows: 2}",
    "outer/x": "{defaults: [{size: ???}, _self_], k: 1}",
    "outer/y": "{defaults: [{size: s}, _self_], k: 2}",
    "outer/size/s": "{v: 1}",
    "outer/size/l": "{v: 2}",
    "experiment/first": "# @package _global_\n{defaults: [{override /model: a}], lr: 3}",
    "experiment/second": "# @package _global_\n{defaults: [{override /model: b}], lr: 4, model: {depth: 9}}",
    "../more/extra/p": "{e: 1}",
    "../more/extra/q": "{e: 2}",
}
MODEL = "defaults: [{model: ???}, _self_]\nlr: 0.1\n"
SEARCHED = "hydra: {searchpath: ['file://FOLDER/more']}\n"
LAYOUTS = {
    "one group": (MODEL, "model=a,b"),
    "with other axes": (MODEL, "model=b,a lr=1,2 +seed=3,4"),
    "with settings of a choice": (MODEL, "model=a,b model.width=7,8 +model.new=1"),
    "with a mapping": (MODEL, "model=a,b +model={new:1},{new:2}"),
    "all choices": (MODEL, "model=glob(*) lr=choice(1,2)"),
    "several choices": (MODEL, "model=[a,b],[b]"),
    "two groups": ("defaults: [{model: ???}, {optimizer: ???}, _self_]", "optimizer=sgd,adam model=a,b"),
    "after the rest": ("defaults: [_self_, {model: ???}]\nmodel: {width: 1, mine: 2}", "model=a,b"),
    "a nested group": ("defaults: [{db/mysql: ???}, _self_]", "db/mysql=small,big"),
    "files of nested groups": ("defaults: [{db: ???}, _self_]", "db=mysql/small,mysql/big"),
    "a group inside a choice": ("defaults: [{outer: ???}, _self_]", "outer=x,y outer/size=s,l"),
    "a group inside one choice": ("defaults: [{outer: ???}, _self_]", "outer=x outer/size=s,l"),
    "a package": ("defaults: [{model@net: ???}, _self_]", "model@net=a,b net.width=1,2"),
    "the global package": ("defaults: [{model@_global_: ???}, _self_]", "model@_global_=a,b width=1,2"),
    "a group twice": (
        "defaults: [{model@net.one: ???}, {model@net.two: ???}]",
        "model@net.one=a,b model@net.two=a,b",
    ),
    "a nested group in a package": ("defaults: [{db/mysql@store: ???}]", "db/mysql@store=small,big"),
    "in a preset": (
        "defaults: [{model: ???}, _self_, {experiment: null}]\nlr: 0.1",
        "experiment=first,second",
    ),
    "a mandatory preset": (
        "defaults: [{model: ???}, _self_, {experiment: ???}]\nlr: 0.1",
        "experiment=first,second model=a,b",
    ),
    "an added preset": (f"{MODEL}", "+experiment=first,second"),
    "params": (f"{MODEL}hydra: {{sweeper: {{params: {{model: 'a,b'}}}}}}", ""),
    "params and axes": (f"{MODEL}hydra: {{sweeper: {{params: {{model: 'a,b', lr: '1,2'}}}}}}", "+seed=1,2 lr=3,4"),
    "params of nested groups": (
        "defaults: [{outer: ???}, _self_]\nhydra: {sweeper: {params: {outer: 'x,y', outer/size: 's,l'}}}",
        "",
    ),
    "a folder searched": (f"{MODEL}{SEARCHED}", "model=a,b +extra=p,q"),
    "a mandatory group searched": (f"defaults: [{{extra: ???}}, _self_]\n{SEARCHED}", "extra=p,q"),
    "interpolations of choices": (
        f"{MODEL}kind: '${{hydra:runtime.choices.model}}'\nwidth: '${{model.width}}'",
        "model=a,b",
    ),
}


@pytest.fixture
def write_layout(tmp_path: Path) -> Callable[[str], Path]:
    def write(config: str, **more: str) -> Path:
        for name, text in {**FILES, **more, "config": config.replace("FOLDER", str(tmp_path))}.items():
            path = tmp_path / "conf" / f"{name}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("???", "'???'"))
        return tmp_path / "conf"

    return write


@pytest.fixture(autouse=True)
def no_hydra() -> Iterator[None]:
    GlobalHydra.instance().clear()
    yield
    GlobalHydra.instance().clear()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cells_are_those_of_hydras_own_sweeper(layout: str, write_layout: Callable[[str], Path]) -> None:
    config, words = LAYOUTS[layout]
    with initialize_config_dir(str(write_layout(config)), version_base="1.3"):
        hydras: Any = GlobalHydra.instance().config_loader()
        master = hydras.load_configuration("config", words.split(), RunMode.MULTIRUN)
        params = OmegaConf.select(master, "hydra.sweeper.params") or {}
        given = [*(f"{key}={value}" for key, value in params.items()), *words.split()]
        parsed = OverridesParser.create(config_loader=hydras).parse_overrides(given)
        for each in parsed:
            each.config_loader = hydras
        (jobs,) = BasicSweeper.split_arguments(parsed, None)
        ours = CellLoader(hydras, is_built_in=False)
        ours.remember(master)
        cells = read_override_grid(ours, given, GridRules()).combinations()
        assert cells == [list(job) for job in jobs] and len(cells) > 1
        for job in jobs:
            assert seen(ours, master, list(job)) == seen(hydras, master, list(job)), job


def seen(loader: ConfigLoaderImpl, master: DictConfig, words: list[str]) -> list[Any]:
    """What a job sees: its configuration, and its choices."""
    config = loader.load_sweep_config(master, words)
    choices = OmegaConf.to_container(config.hydra.runtime.choices)
    del config.hydra
    return [OmegaConf.to_container(config), choices]
