"""The direction of a metric by the words of its name."""

import pytest

from runmanager.records.run.metric_direction import prefers_larger


@pytest.mark.parametrize(
    ("name", "is_larger_better"),
    [
        *((name, True) for name in ("accuracy", "val/f1", "val/F1Score", "BinaryF1Score", "R2Score", "BLEUScore")),
        *((name, True) for name in ("mIoU", "IoU", "mAP", "mAP@0.5", "val_acc1", "ROCAUC", "tokens_per_second")),
        *((name, False) for name in ("loss", "val_loss", "valLoss", "ppl", "epoch_seconds", "LossG", "fid")),
        *((name, None) for name in ("lr", "grad", "accuracy_std", "f1_std", "loss_scale", "1-accuracy", "1 - f1")),
        *((name, None) for name in ("num_steps", "", "42", "return_steps", "grad_norm")),
        *((name, None) for name in ("neg_mean_squared_error", "test/NegLogLoss", "negative_loss", "minus_reward")),
        *((name, None) for name in ("accuracy_gap", "f1_threshold", "best_accuracy_epoch", "loss_ratio")),
    ],
)
def test_direction_by_name(name: str, is_larger_better: bool | None) -> None:
    assert prefers_larger(name) is is_larger_better
