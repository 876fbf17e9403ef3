"""Names of other programs mean a column only where they can mean nothing else."""

import itertools

import pytest

from runmanager.records.run.metric_names import by_preference, by_quantity, column_of_metric


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


OF_VALIDATION = [
    *("val_accuracy", "val_loss", "Loss/val", "loss_valid", "eval/acc", "dev_f1", "holdout", "held-out accuracy"),
    *("valAcc", "accVal", "F1.VALIDATION", "VALLoss", "valloss", "val2017/mAP", "train/val_loss", "best_dev_f1"),
    *("Loss_val/Loss", "eval_loss", "loss[valid]"),
]
OTHERS = [
    *("test_loss", "Loss/Test", "testAcc", "accuracy-test", "testacc", "losstest", "tst:bleu", "val/test_acc"),
    *("eval_test/f1", "f1", "latest_accuracy", "contest_score", "retrain_rate", "constraint_error", "value_loss"),
    *("trained_loss", "trainable_score", "validity_score", "device_error", "medieval_f1", "attest"),
]
OF_TRAINING = [
    *("accuracy", "loss", "metrics.loss", "train_loss", "Loss/train", "loss.train", "trainLoss", "LossTrain"),
    *("Accuracy/Training", "trainloss", "accTrain", "eval/train_loss", "train_eval/f1", "TRAIN F1", "Loss_train/Loss"),
    *("accuracy_on_training_set", "trn-err"),
]
OF_SPEED = ["eval_samples_per_second", "train/time", "val_latency", "evaluate_seconds"]


def test_validation_comes_before_test_before_training_wherever_the_word_stands() -> None:
    groups = [OF_VALIDATION, OTHERS, OF_TRAINING, OF_SPEED]
    for better, worse in itertools.pairwise(groups):
        for first, second in itertools.product(better, worse):
            assert by_preference([second, first]) == [first, second]
    for group in groups:
        assert by_preference(group) == group
        assert by_preference(reversed(group)) == group[::-1]


def test_metrics_of_one_quantity_are_together_those_of_validation_first() -> None:
    names = ["accuracy", "val_accuracy", "Loss/train", "val_loss", "test_loss", "train_f1", "F1/valid", "metrics.f1"]
    assert by_quantity([*names, "val/metric_0", "devices", "train"]) == {
        "accuracy": ["val_accuracy", "accuracy"],
        "loss": ["val_loss", "test_loss", "Loss/train"],
        "f1": ["F1/valid", "metrics.f1", "train_f1"],
        "metric_0": ["val/metric_0"],
        "devices": ["devices"],
        "train": ["train"],
    }
