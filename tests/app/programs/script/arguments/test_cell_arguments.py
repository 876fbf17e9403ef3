"""The settings of a cell as arguments: fixed ones first, forms, flags and the run's folder."""

import pytest

from runmanager.app.programs.script.arguments.setting_words import (
    Setting,
    argument_faults,
    form_faults,
    make_arguments,
    parse_settings,
)
from runmanager.errors import ConfigurationError


def cell(*words: str) -> dict[str, Setting]:
    (settings,) = parse_settings(words).combinations()
    return settings


def test_fixed_arguments_come_first_and_the_folder_is_filled_in() -> None:
    settings = cell("lr=1e-3", "batch-size=32", "out={run_dir}/x", "name='a b'")
    arguments = make_arguments(settings, fixed=["train", "--log={run_dir}"], run_dir="/runs/one")
    assert arguments == ["train", "--log=/runs/one", "--lr=1e-3", "--batch-size=32", "--out=/runs/one/x", "--name=a b"]
    assert make_arguments(settings, fixed=["{run_dir}"])[0] == "{run_dir}"


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("{name}={value}", ["lr=0.1", "flag=true", "off=false"]),
        ("-{name} {value}", ["-lr", "0.1", "-flag", "true", "-off", "false"]),
        ("--set '{name}: {value}'", ["--set", "lr: 0.1", "--set", "flag: true", "--set", "off: false"]),
    ],
)
def test_another_form_takes_every_value_as_written(form: str, expected: list[str]) -> None:
    settings = cell("lr=0.1", "flag=true", "off=false")
    assert form_faults(form) == []
    assert make_arguments(settings, form=form) == expected


@pytest.mark.parametrize("form", ["{name}", "{value}", "--x", "", "'{name}={value}"])
def test_a_form_without_name_and_value_is_refused(form: str) -> None:
    assert len(form_faults(form)) == 1


def test_without_a_help_true_is_a_flag_and_false_is_refused() -> None:
    assert make_arguments(cell("fast=true", "loud=True")) == ["--fast", "--loud=True"]
    settings = cell("fast=false", "loud=False")
    (fault,) = argument_faults(settings, None, None)
    assert "`fast=false`" in fault and "fast=False" in fault
    with pytest.raises(ConfigurationError):
        make_arguments(settings)
