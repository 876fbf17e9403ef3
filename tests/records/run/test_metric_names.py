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


def test_every_name_of_a_data_set_goes_with_every_quantity() -> None:
    splits = {"eval": "val_", "val": "val_", "valid": "val_", "validation": "val_", "train": "", "training": ""}
    quantities = {"loss": "loss", "acc": "accuracy", "accuracy": "accuracy"}
    for split, prefix in splits.items():
        for quantity, column in quantities.items():
            for name in (f"{split}/{quantity}", f"{quantity}.{split}", f"{split} {quantity}_EPOCH".title()):
                assert column_of_metric(name) == prefix + column
    for column in ("loss", "accuracy", "val_loss", "val_accuracy"):
        assert column_of_metric(column) == column
