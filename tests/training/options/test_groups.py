"""Settings of the groups: their files, their checks, and that they do not load torch."""

import copy
import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from omegaconf import OmegaConf

from runmanager.launching.hydra_internals import register_resolver, store_config, version_base
from runmanager.training.options.dataset import (
    DigitsOptions,
    DiscOptions,
    FakeOptions,
    MnistOptions,
    default_val_size,
    fake_val_size,
)
from runmanager.training.options.groups import (
    OPTION_TYPES,
    AdamOptions,
    CosineOptions,
    DataLoaderOptions,
    MlpOptions,
    MlpTowerOptions,
    MultistepOptions,
    OneCycleOptions,
    SgdOptions,
    TorchvisionModelOptions,
)

CONF = Path(__file__).parents[3] / "conf"
CHOICES = [(group, name) for group, choices in OPTION_TYPES.items() for name in choices]


@pytest.fixture
def schemas(monkeypatch):
    Plugins.instance()  # registers Hydra's schemas once in a process, so before the copy
    monkeypatch.setattr(ConfigStore.instance(), "repo", copy.deepcopy(ConfigStore.instance().repo))
    register_resolver("runmanager.val_size", default_val_size)
    register_resolver("runmanager.fake_val_size", fake_val_size)
    for group, choices in OPTION_TYPES.items():
        for name, kind in choices.items():
            node = OmegaConf.structured(kind)
            OmegaConf.set_readonly(node, None)
            store_config(f"schema_{name}", node, group=group)
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), **version_base()):
        yield


def test_importing_the_options_does_not_load_torch():
    code = "import sys, runmanager.training.options.groups; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0


@pytest.mark.parametrize(("group", "name"), CHOICES)
def test_every_choice_has_a_file_for_its_dataclass(schemas, group, name):
    config = compose(overrides=[f"+{group}={name}"])
    assert OmegaConf.to_object(config)[group] == OPTION_TYPES[group][name]()
    assert (CONF / group / f"{name}.yaml").read_text().startswith("# ")


def test_every_file_of_a_group_is_a_choice_or_custom():
    for group, choices in OPTION_TYPES.items():
        custom = {"custom"} if group in ("dataset", "model") else set()
        assert {file.stem for file in (CONF / group).glob("*.yaml")} == set(choices) | custom


def test_overrides_keep_their_type(schemas):
    config = compose(
        overrides=["+dataset=mnist", "dataset.holdout=0.2", "dataset.size=500", "+model=mlp", "model.hidden=[8,4]"]
    )
    parts = OmegaConf.to_object(config)
    assert parts["dataset"] == MnistOptions(size=500, holdout=0.2)
    assert parts["model"] == MlpOptions(hidden=[8, 4])
    whole = OmegaConf.to_object(compose(overrides=["+dataset=mnist", "dataset.holdout=10000"]))["dataset"]
    assert whole.holdout == 10000 and isinstance(whole.holdout, int)


@pytest.mark.parametrize(
    ("words", "val_size"),
    [
        (["+dataset=digits"], None),
        (["+dataset=digits", "dataset.size=6000"], 1000),
        (["+dataset=digits", "dataset.size=3"], 1),
        (["+dataset=digits", "dataset.size=90000"], None),
        (["+dataset=digits", "dataset.size=6000", "dataset.holdout=0.2"], None),
        (["+dataset=digits", "dataset.size=6000", "dataset.val_size=null"], None),
        (["+dataset=mnist", "dataset.size=600"], 100),
        (["+dataset=cifar10", "dataset.size=600"], 120),
        (["+dataset=fake", "dataset.size=64"], 6),
        (["+dataset=fake", "dataset.size=3"], 1),
        (["+dataset=fake", f"dataset.size={10**400}"], 10**399),
        (["+dataset=fake", "dataset.size=64", "dataset.val_size=1000"], 1000),
    ],
)
def test_validation_follows_the_number_of_training_images(schemas, words, val_size):
    assert OmegaConf.to_object(compose(overrides=words))["dataset"].val_size == val_size


def test_custom_takes_any_setting(schemas):
    config = compose(overrides=["+model=custom", "model._target_=mine.Net", "+model.width=64"])
    assert OmegaConf.to_object(config)["model"] == {"name": "custom", "_target_": "mine.Net", "width": 64}


@pytest.mark.parametrize(("group", "name"), CHOICES)
def test_only_multistep_needs_a_setting(group, name):
    assert bool(OPTION_TYPES[group][name]().faults()) == (name == "multistep")


@pytest.mark.parametrize(
    ("options", "faults"),
    [
        (
            DigitsOptions(size=0, val_size=0, data_seed=-1),
            ["`dataset.size`", "`dataset.val_size`", "`dataset.data_seed`"],
        ),
        (DigitsOptions(holdout=50, val_size=40), ["`dataset.val_size` must equal `dataset.holdout`=50, got 40"]),
        (DigitsOptions(holdout=0.5, val_size=40), []),
        (DiscOptions(size=1, holdout=1.5), ["`dataset.size` must be at least 2, got 1", "`dataset.holdout`"]),
        (MnistOptions(size=-3, holdout=0), ["`dataset.size`", "`dataset.holdout`"]),
        (MnistOptions(holdout=float("nan")), ["`dataset.holdout`"]),
        (FakeOptions(in_shape=[], num_classes=0), ["`dataset.num_classes`", "`dataset.in_shape`"]),
        (MlpOptions(hidden=[]), ["`model.hidden`"]),
        (MlpTowerOptions(depth=1), ["`model.depth` must be at least 2, got 1"]),
        (TorchvisionModelOptions(input_size=0), ["`model.input_size`"]),
        (SgdOptions(momentum=1.0, weight_decay=-1), ["`optimizer.momentum`", "`optimizer.weight_decay`"]),
        (SgdOptions(nesterov=True), ["`optimizer.momentum` must be above 0"]),
        (AdamOptions(betas=[0.9]), ["`optimizer.betas` must be two numbers"]),
        (AdamOptions(betas=[0.9, 1.0], eps=float("nan")), ["`optimizer.eps`", "`optimizer.betas`"]),
        (MultistepOptions(milestones=[5, 5], gamma=0), ["`scheduler.gamma`", "`scheduler.milestones`"]),
        (CosineOptions(min_lr=-0.1), ["`scheduler.min_lr`"]),
        (OneCycleOptions(pct_start=1.0), ["`scheduler.pct_start`"]),
        (DataLoaderOptions(prefetch_factor=0), ["`loader.prefetch_factor`"]),
    ],
)
def test_all_faults_are_reported_together(options, faults):
    lines = options.faults()
    assert len(lines) == len(faults)
    assert all(start in line for start, line in zip(faults, lines, strict=True))


def test_a_choice_cannot_be_renamed():
    renamed = dataclasses.replace(MnistOptions(), name="cifar10")
    assert renamed.faults() == [
        "`dataset.name` must stay 'mnist', got 'cifar10'; `dataset=…` chooses another one, "
        "`runmanager help dataset` lists them."
    ]
