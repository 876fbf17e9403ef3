"""The identity of a cell: the same tomorrow and in another folder, another where what is computed differs."""

import datetime
import itertools
import os
from collections.abc import Iterator

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.utils import setup_globals
from omegaconf import DictConfig, OmegaConf, open_dict

from runmanager.app.programs.application.identity import read_identity
from runmanager.launching.hydra_internals import register_resolver, version_base
from runmanager.records.settings.signature import signature

CONFIG = """
defaults: [_self_, {model: small}]
lr: 0.1
sizes: [8, 16]
nothing: null
group: {inner: "${lr}", list: ["${lr}", x]}
out: ${hydra:runtime.output_dir}
through: ${out}/checkpoints
text: run in ${hydra.runtime.cwd} at ${now:%H:%M}
home: ${oc.env:MY_HOME,nowhere}
from_home: ${home}
choice: ${hydra:runtime.choices.model}
whole: ${group}
sum: ${test_sum:${lr},1}
draw: ${test_draw:}
kept_draw: ${test_kept_draw:}
from_draw: value ${draw}
day: ${test_day:}
of_day: run on ${day}
"""


@pytest.fixture(autouse=True)
def resolvers() -> Iterator[None]:
    """Resolvers of an application: one of its arguments, and two with another value each time."""
    setup_globals()
    draws = itertools.count()
    register_resolver("test_sum", lambda one, other: one + other)
    register_resolver("test_draw", lambda: next(draws))
    register_resolver("test_kept_draw", lambda: next(draws), use_cache=True)
    register_resolver("test_day", lambda: str(datetime.date.today()))
    yield
    for name in ("test_sum", "test_draw", "test_kept_draw", "test_day"):
        OmegaConf.clear_resolver(name)


@pytest.fixture
def composed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    folder = tmp_path_factory.mktemp("conf")
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "model").mkdir()
    for name in ("small", "alike"):
        (folder / "model" / f"{name}.yaml").write_text("width: 8\n")
    with initialize_config_dir(str(folder), **version_base()):

        def make(*overrides: str, output_dir: str = "/somewhere") -> DictConfig:
            config = compose("config", overrides=list(overrides), return_hydra_config=True)
            with open_dict(config):
                config.hydra.runtime.output_dir, config.hydra.job.num, config.hydra.job.id = output_dir, 0, "0"
            return config

        yield make


def test_interpolations_count_by_value_or_by_text(composed, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = read_identity(composed())
    assert identity.faults == []
    assert identity.settings == {
        "lr": 0.1,
        "sizes": [8, 16],
        "nothing": None,
        "group": {"inner": 0.1, "list": [0.1, "x"]},
        "out": "${hydra:runtime.output_dir}",
        "through": "${out}/checkpoints",
        "text": "run in ${hydra.runtime.cwd} at ${now:%H:%M}",
        "home": "${oc.env:MY_HOME,nowhere}",
        "from_home": "${home}",
        "choice": "small",
        "whole": {"inner": 0.1, "list": [0.1, "x"]},
        "sum": 1.1,
        "draw": "${test_draw:}",
        "kept_draw": "${test_kept_draw:}",
        "from_draw": "value ${draw}",
        "day": "${test_day:}",
        "of_day": "run on ${day}",
        "model": {"width": 8},
    }
    assert identity.variables == {"home": ["MY_HOME"]}


def test_place_time_and_environment_do_not_change_the_signature(composed, monkeypatch: pytest.MonkeyPatch) -> None:
    def signed(*overrides: str, **options: str) -> str:
        return signature(read_identity(composed(*overrides, **options)).settings, unsigned=(), later={})

    first = signed()
    monkeypatch.setenv("MY_HOME", os.sep)
    assert signed(output_dir="/elsewhere") == first
    assert signed("lr=0.2") != first
    assert signed("model=alike") != first  # its choice is a setting here


def test_reading_leaves_the_resolvers_as_they_were(composed) -> None:
    config = composed(output_dir="/a/folder")
    read_identity(config)
    assert OmegaConf.has_resolver("hydra") and OmegaConf.has_resolver("oc.env")
    assert OmegaConf.create({"x": "${oc.env:PATH}"}).x == os.environ["PATH"]


def test_faults_name_every_setting_without_a_value(composed) -> None:
    identity = read_identity(
        composed("lr=???", "+a=${nothing.here}", "+b=${oc.env:NO_SUCH_VARIABLE}", "+c=${no_such:1}")
    )
    assert identity.faults[0] == "`lr` must be given, got nothing; add `lr=…`."
    named = [line.split("`")[1] for line in identity.faults]
    assert {"a", "b", "c"} <= set(named)
    assert "out" not in named and "home" not in named
