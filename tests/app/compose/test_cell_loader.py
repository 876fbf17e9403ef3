"""Tests that `CellLoader` composes cells that equal Hydra's own in every node."""

import pickle
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from runmanager.app.compose.cell_loader import CellLoader
from runmanager.app.compose.schema import CellReader, conf_folder, plain_config, read_config
from runmanager.app.hydra_main import _register
from runmanager.launching.hydra_internals import version_base
from runmanager.records.settings.values import plain_settings

SETS = """
lr=0.1
lr=1
lr=abc
lr=null
lr=${oc.env:HOME}
batch_size=${epochs}
batch_size=1.5
batch_size='12'
epochs=3 epochs=4
nothing=3
+nothing=3
++nothing=3
+nothing.deep.down=3
+nothing={a:1,b:[2,3]}
++lr=0.5
+lr=0.5
~lr
~lr=0.01
~lr=0.02
~nothing
eval_batch_size=5
eval_batch_size=null
name=a/b
name='with = and ,'
name=${lr}-x
model=mlp
model=mlp model.hidden=[3,4]
model=mlp model.hidden=[3,x]
model=mlp model.hidden=7
model.hidden=[3] model=mlp
model=mlp_tower model.depth=3 dataset=disc
model.depth=3
+model.depth=3
model=nothing
model=custom model._target_=a.B +model.width=3
model=custom +model.x={y:${lr}}
model=custom
~model
~scheduler
~model=cnn
~model=mlp
scheduler=multistep scheduler.milestones=[1,2] scheduler.gamma=1e-3
+experiment=zero_to_gans
experiment=zero_to_gans
experiment=zero_to_gans optimizer=adam lr=0.3
experiment=gpu_crossover model=mlp_tower
experiment=gpu_crossover model=cnn
experiment=nothing
experiment=null
optimizer@optimizer=sgd
optimizer@other=sgd
+optimizer@other=sgd
+optimizer@other.deep=adamw other.deep.eps=1e-3
optimizer=sgd optimizer.momentum=true
optimizer=[sgd,adam]
optimizer.betas=[0.1]
dataset.holdout=0.2
dataset.holdout=3
dataset.holdout=x
dataset.size=null
early_stop.metric=loss early_stop.patience=3
tensorboard={enabled:false}
tensorboard={nothing:false}
checkpoint=3
device=cuda:1
device=[cpu]
hydra.job.name=other
hydra.sweep.dir=/tmp/x hydra.sweep.subdir='runs/a=b,c'
hydra.launcher.workers=3
hydra.launcher.workers=x
hydra.launcher.nothing=3
hydra/launcher=basic
hydra.job.chdir=true
hydra.nothing=3
+hydra.job.env_set.A=b
hydra.job.config.override_dirname.kv_sep=:
hydra.verbose=true
hydra.searchpath=[]
lr=0.1 model=mlp seed=3 hydra.sweep.dir=x +a.b=c
""".strip().splitlines()
MASTERS = [[], ["hydra.launcher.workers=2"], ["hydra/launcher=basic", "hydra.sweep.dir=there"]]


@pytest.fixture(scope="module")
def loaders() -> Iterator[tuple[ConfigLoaderImpl, CellLoader]]:
    """Hydra's own loader, and a `CellLoader` of it.

    Hydra 1.4 also refuses a cell with another launcher or sweeper than its sweep has. Before any cell is composed, most
    overrides that would choose one are refused.
    """
    _register()
    GlobalHydra.instance().clear()
    anything = mock.patch.object(ConfigLoaderImpl, "_ensure_sweep_config_controller_unchanged", create=True)
    with anything, initialize_config_dir(str(conf_folder()), **version_base()):
        hydras: Any = GlobalHydra.instance().config_loader()
        yield hydras, CellLoader(hydras)


def composed(loader: ConfigLoaderImpl, master: DictConfig, words: list[str]) -> str:
    """Every node of the cell as text, or the error of its composition."""
    try:
        config = loader.load_sweep_config(master, words)
    except (HydraException, OmegaConfBaseException, ValueError):  # experiment=null is a ValueError of Hydra's
        return "refused"
    return OmegaConf.to_yaml(config) + "\n".join(nodes(config, ""))


def nodes(node: Any, path: str) -> Iterator[str]:
    """The type of each node and the values that it accepts, which the text does not show."""
    yield f"{path}: {type(node).__name__} {node._metadata.ref_type} {node._metadata.optional} {node._metadata.flags}"
    if isinstance(node, DictConfig) and not (node._is_none() or node._is_missing() or node._is_interpolation()):
        for key in node.keys():  # noqa: SIM118  # iterating would resolve nothing, but a plain dict it is not
            yield from nodes(node._get_node(key), f"{path}.{key}")


@pytest.mark.parametrize("master_words", MASTERS, ids=" ".join)
def test_every_set_of_overrides_composes_as_in_hydra(
    loaders: tuple[ConfigLoaderImpl, CellLoader], master_words: list[str]
) -> None:
    hydras, ours = loaders
    master = hydras.load_configuration("config", master_words, RunMode.MULTIRUN)
    few = SETS if not master_words else SETS[::9]
    outcomes = {}
    for line in few:
        expected = composed(hydras, master, line.split())
        assert composed(ours, master, line.split()) == expected, line
        outcomes[line] = expected == "refused"
    assert 0.1 * len(few) < sum(outcomes.values()) < 0.6 * len(few)  # some sets are valid and some are not


POOL = [line for line in SETS if "hydra" not in line and "'" not in line]


@settings(max_examples=12, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
@given(chosen=st.lists(st.sampled_from(POOL), min_size=2, max_size=4))
def test_combined_overrides_compose_as_in_hydra(
    loaders: tuple[ConfigLoaderImpl, CellLoader], chosen: list[str]
) -> None:
    hydras, ours = loaders
    master = hydras.load_configuration("config", [], RunMode.MULTIRUN)
    words = " ".join(chosen).split()
    assert composed(ours, master, words) == composed(hydras, master, words)


def test_a_remembered_master_is_composed_no_second_time(
    loaders: tuple[ConfigLoaderImpl, CellLoader], monkeypatch: pytest.MonkeyPatch
) -> None:
    hydras, _ = loaders
    command = "hydra.launcher.workers=2 model=mlp lr=0.3 epochs=7 tensorboard={enabled:false} seed=1,2"
    master = hydras.load_configuration("config", command.split(), RunMode.MULTIRUN)
    loads: list[Any] = []
    load = CellLoader.load_configuration
    monkeypatch.setattr(CellLoader, "load_configuration", lambda *args: loads.append(args) or load(*args))

    def loads_for(line: str, master: DictConfig) -> int:
        ours = CellLoader(hydras)
        ours.remember(master)
        assert composed(ours, master, line.split()) == composed(hydras, master, line.split()), line
        count = len(loads)
        loads.clear()
        return count

    whole = "model=mlp lr=0.3 epochs=7 tensorboard={enabled:false} seed=1"
    for line in (whole, f"{whole} +extra=1 ~batch_size", f"{whole} hydra.sweep.dir=x model.hidden=[9]"):
        assert loads_for(line, master) == 0, line
    # Another choice, a value that is not set again, or one that cannot be set twice.
    for line in ("lr=0.3 epochs=7 tensorboard={enabled:false} seed=1", "model=mlp lr=0.3 seed=1"):
        assert loads_for(line, master) == 1, line
    added = hydras.load_configuration("config", ["+extra=1"], RunMode.MULTIRUN)
    assert loads_for("+extra=1", added) == 1


def test_a_cell_does_not_affect_the_next(loaders: tuple[ConfigLoaderImpl, CellLoader]) -> None:
    hydras, ours = loaders
    master = hydras.load_configuration("config", [], RunMode.MULTIRUN)
    ours.load_sweep_config(master, ["lr=0.5", "+extra=1", "model=mlp", "model.hidden=[9]"])
    assert ours.load_sweep_config(master, ["model=mlp"]) == hydras.load_sweep_config(master, ["model=mlp"])


def test_a_loader_can_be_pickled(loaders: tuple[ConfigLoaderImpl, CellLoader]) -> None:
    hydras, ours = loaders
    master = hydras.load_configuration("config", [], RunMode.MULTIRUN)
    here = ours.load_sweep_config(master, ["model=mlp", "lr=0.5"])
    assert pickle.loads(pickle.dumps(ours)).load_sweep_config(master, ["model=mlp", "lr=0.5"]) == here


def test_equal_values_of_several_cells_are_read_once(loaders: tuple[ConfigLoaderImpl, CellLoader]) -> None:
    hydras, ours = loaders
    master = hydras.load_configuration("config", [], RunMode.MULTIRUN)
    reader = CellReader()
    read = []
    for words in ("lr=1", "lr=2", "model=mlp model.hidden=[3]", "model=mlp model.hidden=[4]", "dataset.holdout=0.5"):
        cfg = ours.load_sweep_config(master, words.split())
        read.append(reader.read(cfg))
        assert read[-1] == (plain_config(cfg), read_config(cfg), {"data_root", "dataset.val_size"})
    (first, first_config, derived), (second, second_config, same) = read[:2]
    assert derived is same
    assert reader.read(ours.load_sweep_config(master, ["dataset.val_size=9"]))[2] == {"data_root"}
    assert first["optimizer"] is second["optimizer"]
    assert first["data_root"] is second["data_root"]
    assert first_config.optimizer is second_config.optimizer


def test_numbers_that_json_lacks_are_read_as_a_run_stores_them(
    loaders: tuple[ConfigLoaderImpl, CellLoader],
) -> None:
    hydras, ours = loaders
    master = hydras.load_configuration("config", [], RunMode.MULTIRUN)
    cfg = ours.load_sweep_config(master, ["model=custom", "model._target_=own.Net", "+model.clip=inf"])
    plain, config, _ = CellReader().read(cfg)
    assert plain == plain_settings(plain_config(cfg))
    assert plain["model"]["clip"] == "inf"
    assert config.model["clip"] == float("inf")
