"""The columns of what programs log."""

import itertools

import pytest

from runmanager.results.table_model.columns import FIXED_COLUMNS, logged_columns


def test_names_are_columns_in_order_of_appearance() -> None:
    columns = logged_columns(["val/f1", "fid", "val/f1"], ["tokens"], ["lr"])
    assert list(columns.metrics.items()) == [("val/f1", "val/f1"), ("fid", "fid")]
    assert columns.counts == {"tokens": "tokens"}
    assert columns.rates == {"tokens": "tokens_per_second"}


@pytest.mark.parametrize("name", sorted(FIXED_COLUMNS))
def test_the_name_of_a_fixed_column_is_prefixed(name: str) -> None:
    assert logged_columns([name], [], []).metrics == {name: f"metrics.{name}"}


def test_the_name_of_a_setting_is_prefixed_even_if_that_has_another_column() -> None:
    assert logged_columns(["dropout", "speedup"], [], ["dropout", "speedup"]).metrics == {
        "dropout": "metrics.dropout",
        "speedup": "metrics.speedup",
    }
    assert logged_columns([], ["tokens"], ["tokens"]).counts == {"tokens": "metrics.tokens"}
    assert logged_columns([], ["samples"], []).rates == {"samples": "metrics.samples_per_second"}


def test_a_measured_rate_has_its_name_before_a_metric() -> None:
    columns = logged_columns(["tokens_per_second", "tokens"], ["tokens"], [])
    assert columns.rates == {"tokens": "tokens_per_second"}
    assert columns.metrics == {"tokens_per_second": "metrics.tokens_per_second", "tokens": "metrics.tokens"}


def test_columns_are_different_and_do_not_depend_on_the_order() -> None:
    names = ["loss", "metrics.loss", "metrics.metrics.loss"]
    expected = {name: f"metrics.{name}" for name in names}
    for ordered in itertools.permutations(names):
        assert logged_columns(ordered, [], []).metrics == expected
    assert logged_columns(["metrics.f1", "f1"], [], []).metrics == {"metrics.f1": "metrics.f1", "f1": "f1"}
    taken = logged_columns(["loss", "metrics.loss"], [], ["metrics.loss"]).metrics
    assert len({*taken.values(), "metrics.loss"}) == 3
