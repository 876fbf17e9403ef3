"""Headings of columns in words."""

import pytest

from runmanager.results.table_model.columns import Table
from runmanager.results.table_model.formatting import heading, in_figures, in_words

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


def test_sentences_have_words_for_columns_and_reasons_but_not_in_commands() -> None:
    text = (
        "The best val_accuracy is 0.9; use `--metric val_accuracy` and my_val_accuracy; skipped (device_unavailable)."
    )
    told = text.replace("best val_accuracy", "best validation accuracy").replace(
        "device_unavailable", "device unavailable"
    )
    assert in_words(text) == told
    assert in_words("overall_samples_per_second is lower") == "overall samples per second is lower"
    assert in_words("see `overall_samples_per_second`, `flop_share`") == (
        "see overall samples per second, FLOP, share of the best"
    )


def test_figures_name_the_unit_of_their_numbers() -> None:
    assert in_figures("peak_memory_bytes", TABLE) == "peak memory, bytes"
    assert in_figures("samples_per_second", TABLE) == "samples per second"
    assert in_figures("val_f1", TABLE) == "val_f1"
