"""Datasets in two tensors, and the conversion of known datasets to them if it changes no sample."""

import numpy as np
import pytest
import torch
import torchvision
from torch.utils.data import Subset, TensorDataset
from torchvision.transforms import Compose, Normalize, ToTensor, v2

from runmanager.errors import DatasetError
from runmanager.training.datasets.array_dataset import ArrayDataset, as_arrays, as_floats, subset, transform_names

IMAGES = torch.randint(0, 256, (300, 6, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
IMAGES[0].flatten()[:] = torch.arange(30)
LABELS = torch.arange(300) % 10


def mnist(kind=torchvision.datasets.MNIST, **transforms):
    """torchvision's dataset as if its files had been read."""
    dataset = kind.__new__(kind)
    torchvision.datasets.VisionDataset.__init__(dataset, "nowhere", **transforms)
    dataset.data, dataset.targets = IMAGES, LABELS
    return dataset


def cifar(**transforms):
    dataset = mnist(torchvision.datasets.CIFAR100, **transforms)
    dataset.data = np.random.default_rng(0).integers(0, 256, (300, 4, 4, 3), dtype=np.uint8)
    dataset.targets = LABELS.tolist()
    return dataset


class Squares(torchvision.datasets.MNIST):
    def __getitem__(self, index):
        image, target = super().__getitem__(index)
        return image, target**2


class Half(torchvision.datasets.MNIST):
    def __len__(self):
        return super().__len__() // 2


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


def test_bytes_are_scaled_to_the_nearest_float():
    exact = torch.arange(256, dtype=torch.float64) / 255
    assert torch.equal(as_floats(torch.arange(256, dtype=torch.uint8)), exact.to(torch.float32))


def test_floats_are_not_scaled():
    values = torch.tensor([[-1.5], [3.0]], dtype=torch.float64)
    images, _ = ArrayDataset(values, torch.zeros(2)).__getitems__([1, 0])
    assert images.tolist() == [[3.0], [-1.5]] and images.dtype == torch.float32


def test_changing_a_sample_in_place_does_not_change_the_dataset():
    dataset = ArrayDataset(torch.ones(3, 2), torch.zeros(3))
    dataset[0][0].zero_()
    dataset.__getitems__([0, 1])[0].zero_()
    assert dataset.tensors()[0].sum() == 6


def test_a_subset_of_an_array_dataset_is_an_array_dataset(dataset):
    part = subset(dataset, [3, 1])
    assert isinstance(part, ArrayDataset) and part.tensors()[1].tolist() == [3, 1]
    other = subset(TensorDataset(torch.arange(5)), [3, 1])
    assert [int(each[0]) for each in (other[0], other[1])] == [3, 1]


def test_numbers_of_images_and_labels_must_agree():
    with pytest.raises(DatasetError, match="one label an image, got 3 and 2"):
        ArrayDataset(torch.zeros(3, 1), torch.zeros(2))


@pytest.mark.parametrize("make", [mnist, cifar])
@pytest.mark.parametrize("transform", [ToTensor(), Compose([Compose([ToTensor()])])], ids=["ToTensor", "Compose"])
def test_torchvision_datasets_are_converted_with_the_same_samples(make, transform):
    read = make(transform=transform)
    arrays = as_arrays(read)
    assert isinstance(arrays, ArrayDataset) and arrays.tensors()[0].dtype == torch.uint8
    for index in (0, 7, 299):
        (image, label), (expected, number) = arrays[index], read[index]
        assert torch.equal(image, expected) and image.dtype == expected.dtype and label == number


@pytest.mark.parametrize("kind", [torchvision.datasets.FashionMNIST, torchvision.datasets.EMNIST])
def test_torchvision_datasets_without_a_transform_are_scaled(kind):
    arrays = as_arrays(mnist(kind))
    assert torch.equal(arrays[3][0], ToTensor()(IMAGES[3].numpy())) and arrays[3][1] == 3


@pytest.mark.parametrize(
    "dataset",
    [
        mnist(transform=Compose([ToTensor(), Normalize(0.5, 0.5)])),
        mnist(transform=v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])),
        mnist(transform=np.asarray),
        mnist(transform=ToTensor(), target_transform=int),
        mnist(Squares, transform=ToTensor()),
        mnist(Half, transform=ToTensor()),
        mnist(torchvision.datasets.QMNIST, transform=ToTensor()),
        TensorDataset(torch.rand(4, 2), torch.rand(4, dtype=torch.complex64)),
        TensorDataset(torch.rand(4, 2, requires_grad=True), torch.arange(4)),
        TensorDataset(torch.rand(4, 2), torch.arange(4), torch.arange(4)),
        Subset(TensorDataset(torch.rand(4, 2), torch.arange(4)), [0, -1]),
    ],
)
def test_datasets_that_may_read_other_samples_are_not_converted(dataset):
    assert as_arrays(dataset) is dataset


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32, torch.float64])
def test_a_tensor_dataset_keeps_its_values(dtype):
    inputs = (torch.rand(20, 3) * 100).to(dtype)
    arrays = as_arrays(TensorDataset(inputs, torch.arange(20, dtype=torch.int32)))
    images, labels = arrays.__getitems__([4, 2])
    assert images.dtype == dtype and torch.equal(images, inputs[[4, 2]])
    assert labels.tolist() == [4, 2] and labels.dtype == torch.int64


def test_nested_subsets_are_converted():
    arrays = as_arrays(Subset(Subset(mnist(transform=ToTensor()), range(100, 200)), [5, 50]))
    assert isinstance(arrays, ArrayDataset) and arrays.tensors()[1].tolist() == [105 % 10, 150 % 10]
    assert arrays.classes[:2] == ["0 - zero", "1 - one"]


def test_names_of_transforms():
    def jitter(image):
        return image

    assert transform_names(mnist()) is None
    nested = Compose([jitter, Compose([ToTensor(), Normalize(0.5, 0.5)])])
    assert transform_names(mnist(transform=nested)) == "jitter, ToTensor, Normalize"
    assert transform_names(Subset(mnist(target_transform=int), [0])) == "int"
    assert transform_names(torchvision.datasets.VisionDataset("nowhere", transforms=jitter)) == "jitter"
