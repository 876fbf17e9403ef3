"""Histograms of a network's weights and gradients: counted on their device, at bounded cost, in two transfers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import gcd, isfinite

import torch

from runmanager.text import pluralize
from runmanager.tracking.epoch_metrics.loss_buffer import sum_type
from runmanager.tracking.introspect.sharded_parameters import is_sharded, local_part

__all__ = ["MAX_PARAMETERS", "MAX_VALUES", "NUM_BINS", "Histogram", "compute_histograms", "describe_omissions"]

NUM_BINS = 64
MAX_VALUES = 1 << 16  # per tensor: the relative error of an average bin is then 3%
MAX_PARAMETERS = 100
_BLOCK = 16  # one cache line: reading a single value costs as much as these


@dataclass(frozen=True)
class Histogram:
    """Counts in bins of equal width: `limits[i]` is the upper end of the bin with `counts[i]` values.

    `low`, `high`, `total` and `squares` are minimum, maximum, sum and sum of squares of the values.
    """

    low: float
    high: float
    total: float
    squares: float
    limits: Sequence[float]
    counts: Sequence[int]


def compute_histograms(network: torch.nn.Module) -> Mapping[str, Histogram | None]:
    """Compute `weights/<parameter>` and `gradients/<parameter>` of the first `MAX_PARAMETERS` parameters, in order.

    A tensor with more than `MAX_VALUES` values is sampled evenly. None stands for a tensor with NaN or infinity; empty
    tensors and missing gradients are left out. Waits for the device twice.
    """
    tensors = dict(_tensors(network))
    if not tensors:
        return {}
    found: dict[str, Histogram | None] = dict.fromkeys(tensors)
    moments = torch.stack([_moments(_sample(tensor)) for tensor in tensors.values()]).tolist()
    finite = {tag: values for tag, values in zip(tensors, moments, strict=True) if all(map(isfinite, values[:2]))}
    all_counts = [_counts(_sample(tensors[tag]), *_range(low, high)) for tag, (low, high, *_) in finite.items()]
    for tag, counts in zip(finite, torch.stack(all_counts).tolist() if all_counts else (), strict=True):
        low, high, total, squares = finite[tag]
        found[tag] = Histogram(low, high, total, squares, _limits(low, high), counts)
    return found


def describe_omissions(network: torch.nn.Module) -> Sequence[str]:
    """Describe which of the network's parameters and values the histograms leave out."""
    parameters = list(network.parameters())
    sizes = [0 if torch.nn.parameter.is_lazy(parameter) else parameter.numel() for parameter in parameters]
    notes = []
    if any(map(is_sharded, parameters)):
        notes.append("histograms of the part of each parameter that rank 0 holds")
    if len(sizes) > MAX_PARAMETERS:
        notes.append(f"histograms of the first {MAX_PARAMETERS} of {len(sizes)} parameters only")
    if large := sum(size > MAX_VALUES for size in sizes[:MAX_PARAMETERS]):
        subject = pluralize(large, "parameter")
        notes.append(f"histograms of {subject} are of a sample, {MAX_VALUES:,} values of each at most")
    return notes


def _tensors(network: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for name, parameter in islice(network.named_parameters(), MAX_PARAMETERS):
        if torch.nn.parameter.is_lazy(parameter):
            continue
        if not (weights := local_part(parameter.detach())).numel():
            continue
        yield f"weights/{name}", weights
        if parameter.grad is not None:  # frozen parameters and those without influence on the loss have none
            yield f"gradients/{name}", _dense(local_part(parameter.grad.detach()))


def _dense(gradient: torch.Tensor) -> torch.Tensor:
    """Return the rows that a sparse gradient of an embedding has; any other gradient as it is."""
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Return at most `MAX_VALUES` values, (values,), float32: blocks of `_BLOCK` neighbours at equal distances."""
    flat = tensor.reshape(-1)
    if len(flat) > MAX_VALUES:
        step = -(-len(flat) // (MAX_VALUES // _BLOCK))
        while gcd(step, len(flat)) > 1:  # else all blocks could lie in the same columns of a matrix
            step += 1
        flat = flat[: len(flat) // step * step].view(-1, step)[:, :_BLOCK].reshape(-1)
    return flat.float()


def _moments(values: torch.Tensor) -> torch.Tensor:
    """Return minimum, maximum, sum and sum of squares, (4,)."""
    exact = sum_type(values.device)
    low, high = values.aminmax()
    return torch.stack([low.to(exact), high.to(exact), values.sum(dtype=exact), values.square().sum(dtype=exact)])


def _range(low: float, high: float) -> tuple[float, float]:
    """Return the start of the first bin and the end of the last one, which differ even if all values are equal."""
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _limits(low: float, high: float) -> list[float]:
    begin, end = _range(low, high)
    return [begin + (end - begin) * (number + 1) / NUM_BINS for number in range(NUM_BINS)]


def _counts(values: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Count the values in each bin, (NUM_BINS,), int64; the last bin includes its upper end."""
    exact = values.to(sum_type(values.device))  # in float32, 1 / width overflows for vanishing gradients
    bins = (exact - low).mul_(NUM_BINS / (high - low)).to(torch.int64).clamp_(0, NUM_BINS - 1)
    counts = torch.zeros(NUM_BINS, dtype=torch.int64, device=values.device)
    return counts.scatter_add_(0, bins, torch.ones_like(bins))
