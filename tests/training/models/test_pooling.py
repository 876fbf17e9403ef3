"""2x2 max pooling: the values and gradients of PyTorch's, for every memory layout."""

import copy

import pytest
import torch
import torch.nn.functional as F

from runmanager.training.models.builtin_models import Network, max_pool_2x2

FORMATS = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}


def gradient(pooled: torch.Tensor, images: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    (found,) = torch.autograd.grad(pooled, images, given)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("memory_format", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("shape", [(3, 6, 8, 12), (2, 1, 2, 2), (1, 5, 7, 8), (2, 3, 8, 5), (0, 6, 4, 4)], ids=str)
def test_values_and_gradients_equal_pytorchs(
    shape: tuple[int, ...], memory_format: torch.memory_format, dtype: torch.dtype
) -> None:
    # All values differ, so that each square has one maximum.
    numbers = torch.randperm(max(1, torch.Size(shape).numel()))[: torch.Size(shape).numel()] - 100
    images = numbers.reshape(shape).to(dtype=torch.float32).div(512).to(dtype)
    images = images.to(memory_format=memory_format).requires_grad_()
    ours, theirs = max_pool_2x2(images), F.max_pool2d(images, 2, 2)
    assert torch.equal(ours, theirs) and ours.dtype == dtype
    given = torch.rand_like(theirs)
    found = gradient(ours, images, given)
    if dtype != torch.bfloat16:  # which rounds some of these to equal values
        assert torch.equal(found, gradient(theirs, images, given))
    assert found.is_contiguous(memory_format=memory_format)
    with torch.no_grad():
        assert torch.equal(max_pool_2x2(images), theirs)


def test_one_of_several_equal_maxima_gets_the_gradient() -> None:
    images = torch.randint(2, (4, 3, 6, 6)).float().requires_grad_()
    given = torch.rand(4, 3, 3, 3) + 1
    found = gradient(max_pool_2x2(images), images, given)
    squares = F.unfold(found, 2, stride=2).reshape(4, 3, 4, 9)
    of_images = F.unfold(images, 2, stride=2).reshape(4, 3, 4, 9)
    assert torch.equal(squares.sum(dim=2), given.reshape(4, 3, 9))
    assert torch.equal((squares > 0).sum(dim=2), torch.ones(4, 3, 9, dtype=torch.int64))
    assert torch.equal((squares > 0) & (of_images == of_images.amax(dim=2, keepdim=True)), squares > 0)


def test_nan_is_propagated() -> None:
    images = torch.rand(1, 2, 4, 4)
    images[0, 1, 2, 3] = torch.nan
    assert torch.equal(max_pool_2x2(images).isnan(), F.max_pool2d(images, 2).isnan())


def test_the_network_trains_as_with_pytorchs_pooling(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    ours = Network().double()
    theirs = copy.deepcopy(ours)
    images, labels = torch.rand(16, 1, 28, 28).double(), torch.arange(16) % 10
    images[:, :, :6] = 0  # as in MNIST: all values of a square are equal
    F.cross_entropy(ours(images), labels).backward()
    monkeypatch.setattr("runmanager.training.models.builtin_models.max_pool_2x2", lambda each: F.max_pool2d(each, 2, 2))
    F.cross_entropy(theirs(images), labels).backward()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        assert torch.allclose(one.grad, other.grad, rtol=1e-12, atol=1e-15)


def test_other_devices_use_pytorchs_pooling() -> None:
    images = torch.empty(2, 6, 8, 8, device="meta", requires_grad=True)
    assert type(max_pool_2x2(images).grad_fn).__name__.startswith("MaxPool2DWithIndices")
    of_ours = max_pool_2x2(torch.rand(2, 6, 8, 8, requires_grad=True)).grad_fn
    assert type(of_ours).__name__.startswith("_MaxPool2x2")
