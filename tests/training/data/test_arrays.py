"""Datasets in tensors: bytes become fractions, one at a time or a batch at once."""

import pytest
import torch
from torch.utils.data import TensorDataset

from runmanager.errors import DatasetError
from runmanager.training.data.arrays import ArrayDataset, as_floats, subset


@pytest.fixture
def dataset():
    images = torch.arange(12 * 4, dtype=torch.uint8).view(12, 1, 2, 2)
    return ArrayDataset(images, torch.arange(12, dtype=torch.int32))


def test_samples_and_batches_agree(dataset):
    images, labels = dataset.__getitems__([5, 0, 11])
    assert images.dtype == torch.float32 and labels.dtype == torch.int64
    assert images.shape == (3, 1, 2, 2) and labels.tolist() == [5, 0, 11]
    for number, index in enumerate([5, 0, 11]):
        image, label = dataset[index]
        assert torch.equal(image, images[number]) and label == labels[number]
    assert images[0].flatten().tolist() == pytest.approx([20 / 255, 21 / 255, 22 / 255, 23 / 255])


def test_every_byte_becomes_the_nearest_fraction():
    exact = torch.arange(256, dtype=torch.float64) / 255
    assert torch.equal(as_floats(torch.arange(256, dtype=torch.uint8)), exact.to(torch.float32))


def test_floats_stay_what_they_are():
    values = torch.tensor([[-1.5], [3.0]], dtype=torch.float64)
    images, _ = ArrayDataset(values, torch.zeros(2)).__getitems__([1, 0])
    assert images.tolist() == [[3.0], [-1.5]] and images.dtype == torch.float32


def test_work_in_place_leaves_the_dataset_alone():
    dataset = ArrayDataset(torch.ones(3, 2), torch.zeros(3))
    dataset[0][0].zero_()
    dataset.__getitems__([0, 1])[0].zero_()
    assert dataset.tensors()[0].sum() == 6


def test_subsets_of_arrays_stay_arrays(dataset):
    part = subset(dataset, [3, 1])
    assert isinstance(part, ArrayDataset) and part.tensors()[1].tolist() == [3, 1]
    other = subset(TensorDataset(torch.arange(5)), [3, 1])
    assert [int(each[0]) for each in (other[0], other[1])] == [3, 1]


def test_one_label_an_image():
    with pytest.raises(DatasetError, match="one label an image, got 3 and 2"):
        ArrayDataset(torch.zeros(3, 1), torch.zeros(2))
