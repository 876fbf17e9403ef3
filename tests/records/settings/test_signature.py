"""Signatures: every requested setting counts, the order does not, and old signatures never change."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from runmanager.records.settings.signature import (
    LATER,
    UNSIGNED,
    short_signature,
    signature,
    with_later_settings,
    without_unsigned,
)
from runmanager.records.settings.values import flatten

KEYS = st.text(min_size=1, max_size=6).filter(lambda key: key not in UNSIGNED and key not in LATER)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
CONFIGS = st.dictionaries(KEYS, VALUES, max_size=5)


def reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reversed_keys(item) for key, item in reversed(value.items())}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


@given(CONFIGS)
def test_order_of_keys_does_not_matter(config: dict[str, Any]) -> None:
    assert signature(reversed_keys(config)) == signature(config)


@given(CONFIGS, KEYS, VALUES)
def test_every_change_matters(config: dict[str, Any], key: str, value: Any) -> None:
    assume(key not in config or repr(reversed_keys(config[key])) != repr(reversed_keys(value)))
    changed = {**config, key: value}
    # A change of the order of inner keys does not count.
    assume(not (key in config and config[key] == value))
    assert signature(changed) != signature(config)


@given(CONFIGS, st.sampled_from(sorted(UNSIGNED)), VALUES)
def test_unsigned_settings_do_not_matter(config: dict[str, Any], key: str, value: Any) -> None:
    assert signature({**config, key: value}) == signature(config)


def test_unsigned_settings_are_exactly_these() -> None:
    storage = {"name", "output_root", "data_root", "resume", "rerun_changed", "checkpoint", "log_every", "hydra"}
    assert storage | {"infer"} == UNSIGNED


@pytest.mark.parametrize("name", sorted(LATER))
def test_later_setting_at_its_neutral_value_keeps_the_signature(name: str) -> None:
    groups = {"optimizer": {"name": "adam"}, "loader": {"name": "dataloader"}, "tensorboard": {"enabled": True}}
    before: dict[str, Any] = {**groups, "lr": 0.1}
    group, _, key = name.rpartition(".")

    def given_as(value: Any) -> dict[str, Any]:
        return {**before, group: {**before.get(group, {}), key: value}} if group else {**before, key: value}

    assert signature(given_as(LATER[name])) == signature(before)
    assert signature(given_as("another")) != signature(before)
    alike = 0 if LATER[name] is False else False
    assert signature(given_as(alike)) != signature(before)
    assert signature({**before, "model": {name: LATER[name]}}) != signature({**before, "model": {}})


def test_a_loss_of_another_program_counts_even_at_the_default_of_the_job() -> None:
    loss = {"_target_": LATER["loss._target_"]}
    assert signature({"lr": 0.1, "loss": loss, "metrics": {}}) != signature({"lr": 0.1, "loss": loss})
    assert signature({"lr": 0.1, "loss": loss}) != signature({"lr": 0.1, "loss": {}})


def test_name_inside_a_group_counts() -> None:
    assert signature({"model": {"name": "cnn"}}) != signature({"model": {"name": "mlp"}})


@pytest.mark.parametrize(("one", "other"), [(1, True), (1, 1.0), (0, None), ("1", 1), ([1], "1"), ([1, 2], [2, 1])])
def test_similar_values_have_different_signatures(one: Any, other: Any) -> None:
    assert signature({"x": one}) != signature({"x": other})


def test_signature_of_a_stored_run_has_not_changed() -> None:
    config = {
        "lr": 0.01,
        "batch_size": 1000,
        "device": "cpu",
        "model": {"name": "cnn", "hidden": [32, 16]},
        "flag": True,
        "none": None,
        "text": "é",
        "name": "ignored",
    }
    assert signature(config) == "cd25445f2c0207cb49825adcf9658684c5e0406fb00089393751989aa6ee3da9"
    assert short_signature(signature(config)) == "cd25445f"


def test_a_validation_on_all_images_is_signed_as_before_the_setting_existed() -> None:
    def of(**dataset: Any) -> str:
        return signature({"optimizer": {"name": "adam"}, "dataset": {"name": "mnist", "size": 100, **dataset}})

    assert of() == of(val_size=None) != of(val_size=17)
    digits = {"name": "digits", "size": 100}
    assert of(**digits) != of(**digits, val_size=None)  # always part of the signatures of digits


STORED = Path(__file__).resolve().parents[2] / "results" / "stored_sweep" / "first" / "runs"
ADDED_SINCE = {
    "loss": {"_target_": "torch.nn.CrossEntropyLoss"},
    "metrics": {},
    "resume": True,
    "rerun_changed": False,
    "hydra": {"sweeper": "runmanager"},
}
NEUTRAL = {
    "precision": "fp32",
    "channels_last": False,
    "micro_batch": None,
    "on_oom": "fail",
    "compile": False,
    "graphs": False,
    "cudnn_benchmark": False,
    "loader.prefetch_to_device": False,
    "optimizer.fused": None,
    "tensorboard.predictions": True,
    "tensorboard.confusion_matrix": True,
}


@pytest.mark.parametrize("folder", sorted(STORED.iterdir()), ids=lambda path: path.name)
def test_runs_of_an_earlier_version_keep_their_signatures(folder: Path) -> None:
    config, record = yaml.safe_load((folder / "config.yaml").read_text()), json.loads((folder / "run.json").read_text())
    assert signature(config) == signature({**config, **ADDED_SINCE}) == record["signature"]
    assert folder.name.endswith(f"-{short_signature(record['signature'])}")


def test_settings_that_were_added_later_may_be_missing_at_their_neutral_value() -> None:
    (folder, *_) = sorted(STORED.iterdir())
    config = yaml.safe_load((folder / "config.yaml").read_text())
    for dotted in NEUTRAL:
        group, _, name = dotted.rpartition(".")
        (config[group] if group else config).pop(name, None)
    assert signature(config) == json.loads((folder / "run.json").read_text())["signature"]
    loaded = flatten(config)
    added = with_later_settings(loaded)
    later = NEUTRAL | {"loss._target_": "torch.nn.CrossEntropyLoss", "metrics": {}}
    assert added == loaded | later
    assert {name: added[name] for name in later} == later
    assert with_later_settings({"lr": 0.1}) == {"lr": 0.1}  # of another program
    mnist = {**loaded, "dataset.name": "mnist"}
    del mnist["dataset.val_size"]
    assert with_later_settings(mnist)["dataset.val_size"] is None
    assert "dataset.val_size" not in with_later_settings({**mnist, "dataset.name": "digits"})
    other_loader = with_later_settings({**loaded, "loader.name": "in_memory"})
    assert "loader.prefetch_to_device" not in other_loader and other_loader["optimizer.fused"] is None


def test_dotted_names_leave_out_settings_of_groups() -> None:
    config = {"a": {"b": {"c": 1, "d": 2}, "e": 3}, "f": {"g": 1}, "h": 5}
    assert without_unsigned(config, ["a.b.c", "h"]) == {"a": {"b": {"d": 2}, "e": 3}, "f": {"g": 1}}
    assert without_unsigned(config, ["a.b", "f.g"]) == {"a": {"e": 3}, "h": 5}  # an empty group goes too
    assert without_unsigned(config, ["h.x", "a.e.y"]) == config
    assert without_unsigned(config, ["f"]) == {"a": config["a"], "h": 5}


def test_without_later_settings_every_value_counts() -> None:
    assert signature({"precision": "fp32"}, later={}) != signature({}, later={})
    assert signature({"precision": "fp32"}, later={}) == signature({"precision": "fp32"}, later={"other": 1})
