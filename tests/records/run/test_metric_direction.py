"""The direction of a metric by the words of its name."""

import pytest

from runmanager.errors import UsageError
from runmanager.records.run.metric_names import MAX, MIN, is_larger_better, parse_better, prefers_larger


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


@pytest.mark.parametrize(
    ("words", "is_larger_better"),
    [
        ("acc accuracy auc auroc rocauc bleu dice f1 iou map miou precision psnr r2", True),
        ("recall return reward score second ssim throughput top1 top5", True),
        ("cer err error fid latency loss mae mse nll perplexity ppl rmse seconds time wer", False),
        ("count delta diff difference drop epoch gap improvement norm num ratio", None),
        ("scale std stderr step steps threshold var variance weight", None),
    ],
)
def test_every_known_word_has_a_direction(words: str, is_larger_better: bool | None) -> None:
    for word in words.split():
        for name in (word, word.upper(), f"val/{word}", f"loss_of_{word}" if is_larger_better else f"accuracy_{word}"):
            assert prefers_larger(name) is is_larger_better, name


def test_a_name_is_split_at_its_capitals() -> None:
    assert [prefers_larger(name) for name in ("trainLoss", "ROCLoss", "LossROCScore", "valXy")] == [
        False,
        False,
        True,
        None,
    ]


def test_directions_as_users_write_them() -> None:
    assert [parse_better(word) for word in ("max", "larger", "min", "smaller")] == [MAX, MAX, MIN, MIN]
    for other in ("bigger", "MAX", None):
        with pytest.raises(UsageError, match="`better` must be min or max"):
            parse_better(other)  # type: ignore[arg-type]
    assert is_larger_better("loss", {"loss": "max"}) and not is_larger_better("accuracy", {"accuracy": "min"})
    assert is_larger_better("loss", {"other": "max"}) is False
