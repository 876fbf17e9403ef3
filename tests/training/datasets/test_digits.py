"""The digits: cached, reproducible, without a source digit in both parts, and learnable."""

import logging
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from runmanager.training.datasets.digits import build_digits
from runmanager.training.datasets.registry import load_dataset, prepare_dataset
from runmanager.training.models.builtin_models import build_model
from runmanager.training.options.dataset import DigitsOptions
from runmanager.training.options.groups import LogisticOptions

SMALL = DigitsOptions(size=300, val_size=120)


def load(options=SMALL, seed=0):
    return load_dataset(options, data_root=Path("unused"), seed=seed)


def tensors(data):
    return [*data.train.tensors(), *data.validation.tensors()]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(tensors(one), tensors(other), strict=True))


def files(cache_home):
    return sorted((cache_home / "runmanager").glob("*"))


def test_shapes_and_classes():
    data = load()
    images, labels, val_images, _ = tensors(data)
    assert images.shape == (300, 1, 28, 28) and images.dtype == torch.uint8
    assert val_images.shape == (120, 1, 28, 28)
    assert data.in_shape == (1, 28, 28) and data.num_classes == 10
    assert data.train[0][0].shape == data.in_shape
    assert labels.unique().tolist() == list(range(10))
    assert 20 < images.float().mean() < 120 and images.max() > 200


def test_prepared_once_and_then_read_from_the_cache(cache_home, monkeypatch):
    prepare_dataset(SMALL, data_root=Path("unused"))
    (file,) = files(cache_home)
    before = file.stat().st_mtime_ns
    monkeypatch.setattr("runmanager.training.datasets.digits.build_digits", None)  # building again would fail
    first, again = load(seed=0), load(seed=1)
    assert same(first, again)
    prepare_dataset(SMALL, data_root=Path("unused"))
    assert file.stat().st_mtime_ns == before and files(cache_home) == [file]


def test_built_and_cached_images_are_equal(cache_home):
    built, read = load(), load()
    assert same(built, read)
    assert not same(read, load(DigitsOptions(size=300, val_size=120, data_seed=1)))


@pytest.mark.parametrize("damage", [lambda content: content[:1000], lambda content: b"", lambda content: b"x" * 500])
def test_a_damaged_cache_is_rebuilt(cache_home, caplog, damage):
    whole = load()
    (file,) = files(cache_home)
    content = file.read_bytes()
    file.write_bytes(damage(content))
    with caplog.at_level(logging.WARNING):
        assert same(load(), whole)
    assert "is rebuilt" in caplog.text
    assert file.read_bytes() == content


def test_a_flipped_bit_is_detected(cache_home, caplog):
    whole = load()
    (file,) = files(cache_home)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert same(load(), whole)
    assert "is rebuilt" in caplog.text


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING):
        assert len(load().train) == 300
    assert "cannot be written" in caplog.text


def test_old_cache_files_are_deleted(cache_home):
    for data_seed in range(11):
        load(DigitsOptions(size=10, val_size=10, data_seed=data_seed))
    assert len(files(cache_home)) == 8


@pytest.mark.parametrize("holdout", [None, 0.3, 60])
def test_no_source_digit_is_in_both_parts(holdout):
    arrays = build_digits(DigitsOptions(size=3000, holdout=holdout), seed=4)
    training, validation = set(arrays["train_sources"].tolist()), set(arrays["val_sources"].tolist())
    assert training and validation and not training & validation
    assert set(arrays["val_labels"].tolist()) == set(range(10))


def test_a_holdout_depends_on_the_seed_and_excludes_the_test_digits():
    official = set(build_digits(DigitsOptions(size=2000), seed=0)["val_sources"].tolist())
    parts = [build_digits(DigitsOptions(size=2000, holdout=0.25), seed=seed) for seed in (0, 0, 1)]
    held = [set(part["val_sources"].tolist()) for part in parts]
    assert held[0] == held[1] != held[2]
    assert not (set(parts[0]["train_sources"].tolist()) | held[0]) & official


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (DigitsOptions(size=400, holdout=0.2), 100),
        (DigitsOptions(size=400, holdout=50), 50),
        (DigitsOptions(size=400, holdout=0.2, val_size=30), 30),
    ],
)
def test_number_of_validation_images(options, expected):
    data = load(options, seed=3)
    assert (len(data.train), len(data.validation)) == (400, expected)


def test_the_digits_can_be_learned():
    data = load(DigitsOptions(size=4000, val_size=1000))
    torch.manual_seed(0)
    model = build_model(LogisticOptions(), in_shape=data.in_shape, num_classes=data.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(4):
        for start in range(0, 4000, 100):
            images, labels = data.train.__getitems__(range(start, start + 100))
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()
    images, labels = data.validation.__getitems__(range(1000))
    assert (model(images).argmax(dim=1) == labels).float().mean() > 0.8
