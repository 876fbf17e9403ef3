"""The figure of a sweep in parallel coordinates."""

import pytest

from runmanager.records.run.status import Reason, Status

from .drawn_figures import as_fields, figures_in, finished, texts_of


def test_each_setting_and_the_outcome_have_an_axis(contents, timed):
    cells = [
        ({"lr": lr, "batch_size": size, "model": {"name": name}}, size / 100.0)
        for lr in (0.001, 0.01, 0.1)
        for size in (100, 200)
        for name in ("b", "a")
    ]
    drawn = figures_in(finished(contents, timed, cells))["parallel"]
    texts = texts_of(drawn)
    axes = ("lr", "batch_size", "model", "samples per", "second", "validation", "accuracy")
    assert [text for text in texts if text in axes] == list(axes)
    assert {"0.001", "0.01", "0.1", "100", "200", "a", "b"} <= set(texts)
    assert "The best validation accuracy is 0.893" in drawn.description
    assert "without a result" not in drawn.caption


@pytest.mark.parametrize(
    ("metric", "words", "best"),
    [("val_accuracy", "validation accuracy", 0.9), ("val_loss", "validation loss", 0.1)],
)
def test_the_best_cells_are_at_the_top_and_drawn_last(contents, timed, metric, words, best):
    missing = dict.fromkeys(("accuracy", "val_accuracy", "loss", "val_loss"))

    def epochs(value):
        return [type(each)(**{**as_fields(each), **missing, metric: value}) for each in timed([1.0, 1.0])]

    runs = [({"lr": lr, "batch_size": size}, epochs(lr), {}) for lr in (0.1, 0.5, 0.9) for size in (1, 2)]
    failed = ({"lr": 0.7, "batch_size": 1}, [], {"status": Status.FAILED, "reason": Reason.EXCEPTION})
    drawn = figures_in(contents(*runs, failed))["parallel"]
    assert f"The best {words} is {best}, with lr={best}" in drawn.description
    assert "Omitted: 1 cell without a result." in drawn.caption
    last = [line for line in drawn.draw().axes[0].lines if len(line.get_xdata()) > 2]
    ends = [max(y for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True) if x == 3) for line in last]
    assert ends == sorted(ends)
    assert ends[-1] == 1


def test_few_cells_or_a_single_axis_have_no_figure(contents, timed):
    few = [({"lr": lr, "batch_size": 1 + lr % 2}, 1.0) for lr in range(5)]
    one = [({"lr": lr}, 1.0) for lr in range(9)]
    assert all("parallel" not in figures_in(finished(contents, timed, cells)) for cells in (few, one))
