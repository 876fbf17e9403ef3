"""Tags of logged metrics."""

import itertools

import pytest

from runmanager.tracking.tensorboard.hparams import metric_tag


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("f1", "metrics/f1"),
        ("val/f1", "val/f1"),
        ("val/loss", "metrics/val/loss"),
        ("throughput/tokens_per_second", "metrics/throughput/tokens_per_second"),
        ("metrics/f1", "metrics/metrics/f1"),
    ],
)
def test_tags(name: str, tag: str) -> None:
    assert metric_tag(name) == tag


def test_no_two_names_have_one_tag() -> None:
    parts = ("metrics", "val", "loss", "train", "throughput", "f1")
    names = {"/".join(each) for count in (1, 2, 3, 4) for each in itertools.product(parts, repeat=count)}
    assert len({metric_tag(name) for name in names}) == len(names)
