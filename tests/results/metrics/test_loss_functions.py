"""Losses of different functions are different quantities: no verdict, and no best cell by default."""

import msgspec
import pytest

from runmanager.errors import UsageError
from runmanager.results.compare.comparison import compare
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.findings.best import find_best
from runmanager.results.metrics.metric_lookup import loss_functions

MSE = {"_target_": "torch.nn.MSELoss"}
CROSS_ENTROPY = {"_target_": "torch.nn.CrossEntropyLoss"}


@pytest.fixture
def by_loss(contents, timed):
    """Factory of a sweep with these losses, three seeds each, and only a val_loss."""

    def make(*losses):
        def epochs(value):
            return [
                msgspec.structs.replace(each, accuracy=None, val_accuracy=None, val_loss=value)
                for each in timed([1.0] * 6)
            ]

        of_one = len({repr(loss) for loss in losses}) == 1
        cells = []
        for number, loss in enumerate(losses, start=1):
            config = {} if loss is None else {"loss": loss}
            config |= {"lr": number} if of_one else {}
            cells += [({"seed": seed, **config}, epochs(number + seed / 50), {}) for seed in range(3)]
        return contents(*cells)

    return make


@pytest.mark.parametrize(
    ("losses", "found"),
    [
        ((MSE, MSE), ["torch.nn.MSELoss"]),
        ((None, MSE), ["torch.nn.MSELoss", "torch.nn.CrossEntropyLoss"]),
        ((None, CROSS_ENTROPY), ["torch.nn.CrossEntropyLoss"]),
        ((None, None), []),
        (("mse", "l1"), []),  # of another program: not known to be what it records
        (
            (CROSS_ENTROPY, {**CROSS_ENTROPY, "label_smoothing": 0.1}),
            ["torch.nn.CrossEntropyLoss", "torch.nn.CrossEntropyLoss(label_smoothing=0.1)"],
        ),
    ],
)
def test_only_losses_of_one_function_are_compared(by_loss, losses, found):
    sweep = by_loss(*losses)
    assert loss_functions([run.record for run in sweep.runs]) == found
    axis = "lr" if losses[0] == losses[1] else "loss"
    (row,) = compare(sweep, None, CompareOptions(axis=axis, metric="val_loss")).rows[-1:]
    if len(found) < 2:
        assert "loss functions" not in (row["reason"] or "")
        assert find_best(sweep, None).metric.name == "val_loss"
        return
    assert row["verdict"] == "not measured"
    assert f"the loss functions differ, and so what is measured: {', '.join(found)}" in row["reason"]
    with pytest.raises(UsageError):
        find_best(sweep, None)
