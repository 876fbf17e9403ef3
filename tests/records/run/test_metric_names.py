"""Names of other programs mean a column only where they can mean nothing else."""

import pytest

from runmanager.records.run.metric_names import column_of_metric


@pytest.mark.parametrize(
    ("name", "column"),
    [
        *(
            (name, "val_loss")
            for name in ("val_loss", "val/loss", "valid.loss", "Validation Loss", "eval_loss", "Loss/val")
        ),
        *((name, "val_accuracy") for name in ("val_acc", "eval/accuracy", "Accuracy/Valid", "val_acc_epoch")),
        *(
            (name, "loss")
            for name in ("loss", "train_loss", "train/loss", "training-loss", "Loss/train", "train_loss_epoch")
        ),
        *((name, "accuracy") for name in ("accuracy", "train_acc")),
        *(
            (name, None)
            for name in ("test_loss", "train_loss_step", "val_f1", "acc", "val_loss_2", "loss/loss", "val", "")
        ),
    ],
)
def test_name_means_a_column(name: str, column: str | None) -> None:
    assert column_of_metric(name) == column
