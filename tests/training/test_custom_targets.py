"""Targets: missing names and arguments are reported; errors inside a user's module are not caught."""

import pytest

from runmanager.errors import ConfigurationError
from runmanager.training.custom_targets import call_target, parameter_names, resolve_target


def test_a_missing_argument_is_named(own_module):
    own_module("mine", "def make(width, *, depth, bias=True):\n    return (width, depth, bias)\n")
    options = {"_target_": "mine.make", "width": 2}
    target = resolve_target(options, group="model")
    with pytest.raises(ConfigurationError, match=r"must be given 'depth', got nothing; add `\+model.depth=…`"):
        call_target(target, options, {}, group="model")
    assert call_target(target, options, {"depth": 3, "other": 4}, group="model") == (2, 3, True)


def test_a_target_with_any_keywords_receives_only_the_settings(own_module):
    own_module("mine", "def make(**settings):\n    return settings\n")
    options = {"_target_": "mine.make", "name": "custom", "width": 2}
    target = resolve_target(options, group="model")
    assert call_target(target, options, {"in_shape": (1,)}, group="model") == {"width": 2}
    assert parameter_names(target) == []


def test_an_error_inside_the_module_is_not_hidden(own_module):
    own_module("broken", "import not_installed_anywhere\n")
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        resolve_target({"_target_": "broken.Net"}, group="model")


def test_a_method_of_a_class_and_an_installed_package_are_found():
    assert resolve_target({"_target_": "collections.OrderedDict.fromkeys"}, group="model")("a") == {"a": None}


def test_a_module_that_the_standard_library_hides_is_named(own_module):
    own_module("statistics", "class Net: pass\n")
    with pytest.raises(ConfigurationError) as refused:
        resolve_target({"_target_": "statistics.Net"}, group="model")
    assert str(refused.value) == (
        "`model._target_` must name a module that Python's standard library does not have, got statistics.Net, whose "
        "own `statistics` comes first; rename yours."
    )
