"""Headings of columns in words."""

import pytest

from runmanager.results.table_model.columns import Table
from runmanager.results.table_model.headings import heading, in_figures, in_words

TABLE = Table(
    ["optimizer.name", "settings.loss", "batch_size", "val_f1", "ipc_rate"],
    [],
    settings=("optimizer.name", "settings.loss", "batch_size"),
    logged=("val_f1",),
    foreign=("ipc_rate",),
)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("val_accuracy", "validation accuracy"),
        ("ci_low", "95% interval from"),
        ("data_seconds", "data seconds"),
        ("size_bytes", "size"),  # printed in MiB
        ("optimizer.name", "optimizer"),
        ("settings.loss", "loss"),
        ("batch_size", "batch_size"),  # as a command takes it
        ("val_f1", "val_f1"),  # as its program calls it
        ("ipc_rate", "ipc_rate"),
    ],
)
def test_what_is_measured_has_words_and_what_users_named_keeps_its_name(column: str, words: str) -> None:
    assert heading(column, TABLE) == words


def test_sentences_have_words_for_columns_but_not_in_code() -> None:
    text = "The best val_accuracy is 0.9; see `val_accuracy` and overall_val_accuracy."
    assert in_words(text) == "The best validation accuracy is 0.9; see `val_accuracy` and overall_val_accuracy."


def test_figures_name_the_unit_of_their_numbers() -> None:
    assert in_figures("peak_memory_bytes", TABLE) == "peak memory, bytes"
    assert in_figures("samples_per_second", TABLE) == "samples per second"
    assert in_figures("val_f1", TABLE) == "val_f1"
