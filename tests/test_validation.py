"""Checks of settings: limits of fields, suggestions for unknown names, and the wording of faults."""

import dataclasses
import math
import re
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from omegaconf import OmegaConf

from runmanager.errors import UsageError
from runmanager.launching.options import LocalOptions
from runmanager.launching.slurm.options import SlurmOptions
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.tracking.options import EarlyStopOptions, RunOptions
from runmanager.training.options.groups import OPTION_TYPES
from runmanager.training.options.job import CheckpointOptions, InferOptions, TrainingOptions
from runmanager.validation import (
    GroupOptions,
    did_you_mean,
    fault,
    field_faults,
    limits,
    nearest_names,
    range_faults,
    suggestion,
)


def test_a_fault_ends_with_one_full_stop_or_its_question():
    assert fault("lr", "be above 0", -1) == "`lr` must be above 0, got -1."
    assert fault("lr", "be above 0", -1, "0.01 often works") == "`lr` must be above 0, got -1; 0.01 often works."
    assert fault("lrr", "be a setting", "x", "did you mean 'lr'?").endswith("did you mean 'lr'?")


@pytest.mark.parametrize(
    ("value", "bounds", "rule"),
    [
        (0, {"ge": 1}, "be at least 1"),
        (0, {"gt": 0}, "be above 0"),
        (0.0, {"gt": 0}, "be above 0 and finite"),
        (math.inf, {"gt": 0}, "be above 0 and finite"),
        (math.nan, {"ge": 0}, "be at least 0 and finite"),
        (math.inf, {}, "be finite"),
        (0, {"ge": 1, "le": 10}, "be at least 1"),
        (11, {"ge": 1, "le": 10}, "be at most 10"),
        (math.inf, {"ge": 1, "le": 10}, "be at most 10"),
        (math.nan, {"ge": 1, "le": 10}, "be at least 1"),
        (-0.1, {"ge": 0, "lt": 1}, "be at least 0 and below 1"),
        (1.0, {"ge": 0, "lt": 1}, "be at least 0 and below 1"),
        (1, {"gt": 0, "lt": 1}, "be above 0 and below 1"),
        (10**400, {"ge": 0, "lt": 2**63}, "be at least 0 and below 9223372036854775808"),
    ],
)
def test_a_value_outside_its_bounds_is_a_fault(value, bounds, rule):
    assert range_faults("size", value, **bounds) == [f"`size` must {rule}, got {value}."]


@pytest.mark.parametrize(
    ("value", "bounds"),
    [(None, {"ge": 1}), (1, {"ge": 1}), (10, {"le": 10}), (0.999, {"ge": 0, "lt": 1}), (10**400, {"ge": 0})],
)
def test_a_value_within_its_bounds_is_not_a_fault(value, bounds):
    assert range_faults("size", value, **bounds) == []


@dataclass(frozen=True)
class _Options(GroupOptions):
    group: ClassVar[str] = "shape"

    name: str = "box"
    width: int = field(default=1, metadata=limits(ge=1))
    share: float = field(default=0.5, metadata=limits(gt=0, lt=1, key="--share", way_out="0.1 means 10%"))
    depth: int | str | None = field(default=None, metadata=limits(ge=0))
    colour: str | None = field(default=None, metadata=limits(choices=("blue", "green")))
    note: str = ""


def test_all_fields_are_checked_together_in_their_order():
    assert field_faults(_Options(width=0, share=2.0, depth=-1, colour="gren"), "shape.") == [
        "`shape.width` must be at least 1, got 0.",
        "`--share` must be above 0 and below 1, got 2.0; 0.1 means 10%.",
        "`shape.depth` must be at least 0, got -1.",
        "`shape.colour` must be one of blue, green, got gren; did you mean 'green'?",
    ]
    assert field_faults(_Options(depth="auto", colour="blue")) == []


def test_only_fields_whose_type_says_so_may_be_none_and_whole_numbers_have_at_most_64_bits():
    assert field_faults(_Options(depth=None, colour=None, width=2**63 - 1)) == []
    assert field_faults(_Options(width=None, share=None)) == [
        "`width` must be a whole number, got None.",
        "`--share` must be a number, got None; 0.1 means 10%.",
    ]
    assert field_faults(_Options(width=2**63, depth=10**30)) == [
        f"`width` must be at most {2**63 - 1}, got {2**63}.",
        f"`depth` must be at most {2**63 - 1}, got {10**30}.",
    ]


def test_a_choice_of_a_group_cannot_be_renamed():
    renamed = _Options(name="ball", width=0)
    assert renamed.faults() == [
        "`shape.name` must stay 'box', got 'ball'; `shape=…` chooses another one, `runmanager help shape` lists them.",
        "`shape.width` must be at least 1, got 0.",
    ]


def test_limits_do_not_show_in_a_structured_config():
    assert OmegaConf.to_container(OmegaConf.structured(_Options)) == dataclasses.asdict(_Options())


GROUPS = [options for choices in OPTION_TYPES.values() for options in choices.values()]
OTHERS = [LocalOptions, SlurmOptions, CompareOptions]


@pytest.mark.parametrize(
    "options",
    [*GROUPS, TrainingOptions, CheckpointOptions, EarlyStopOptions, InferOptions, RunOptions, *OTHERS],
)
def test_every_number_among_the_settings_has_limits(options):
    numbers = (int, float, int | None, float | None)
    assert [each.name for each in dataclasses.fields(options) if each.type in numbers and not each.metadata] == []


def test_close_names_are_suggested():
    assert did_you_mean("resnet81", ["resnet18", "vgg16"]) == "did you mean 'resnet18'?"
    assert did_you_mean("val_los", ["val_loss", "loss"], max_names=1) == "did you mean 'val_loss'?"
    assert did_you_mean("val_los", ["val_loss", "loss"]) == "did you mean 'val_loss' or 'loss'?"
    assert did_you_mean("qqq", ["resnet18", "vgg16"]) == ""


def test_a_name_is_found_by_its_last_part_and_by_initials():
    known = ["lr", "batch_size", "epochs", "optimizer.momentum", "optimizer.weight_decay"]
    assert nearest_names("learning_rate", known) == nearest_names("--learning-rate", known) == ["lr"]
    assert nearest_names("momentum", known)[0] == "optimizer.momentum"
    assert nearest_names("optimizer.lr", known)[0] == "lr"
    assert nearest_names("bs", known) == ["batch_size"] and nearest_names("wd", known) == ["optimizer.weight_decay"]
    assert nearest_names("e", known) == [] and nearest_names("model.width", ["loader.width"], cutoff=1) == []


def test_known_names_are_listed_if_none_is_close():
    assert suggestion("resnet81", ["resnet18", "vgg16"]) == "did you mean 'resnet18'?"
    assert suggestion("qqq", ["resnet18", "vgg16"]) == "known: resnet18, vgg16."
    assert suggestion("qqq", []) == "known: none."
    assert suggestion("qqq", map(str, range(30))).endswith(" and 10 more.")


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"log_every": -1}, "`log_every` must be at least 0"),
        ({"log_every": 2.0}, "`log_every` must be a whole number"),
        ({"warmup_epochs": True}, "`warmup_epochs` must be a whole number"),
        ({"warmup_epochs": None}, "`warmup_epochs` must be a whole number"),
        ({"warmup_epochs": 10**30}, "`warmup_epochs` must be at most 9223372036854775807"),
        ({"log_every": None}, "`log_every` must be a whole number"),
        ({"rank_timeout": None}, "`rank_timeout` must be a number"),
        ({"record_every": 0}, "`record_every` must be at least 1"),
        ({"checkpoint_seconds": math.inf}, "`checkpoint_seconds` must be at least 0 and finite"),
        ({"checkpoint_seconds": "1"}, "`checkpoint_seconds` must be a number"),
        ({"rank_timeout": 0}, "`rank_timeout` must be above 0"),
        ({"flop_per_sample": -1}, "`flop_per_sample` must be above 0"),
        ({"early_stop": EarlyStopOptions("loss", patience=-1)}, "`early_stop.patience` must be at least 1"),
        ({"early_stop": EarlyStopOptions("loss", min_delta=math.nan)}, "`early_stop.min_delta` must be at least 0"),
    ],
)
def test_options_of_a_run_have_the_limits_of_its_settings(options, rule):
    with pytest.raises(UsageError, match=rf"^{re.escape(rule)}.*, got "):
        RunOptions(**options)
