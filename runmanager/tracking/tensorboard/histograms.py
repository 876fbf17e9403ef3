"""Histograms of a network's weights and gradients: counted where they are, bounded in cost, brought home at once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import gcd, isfinite

import torch

from runmanager.text import pluralize
from runmanager.tracking.metrics.loss_buffer import sum_type

__all__ = ["MAX_PARAMETERS", "MAX_VALUES", "NUM_BINS", "Histogram", "compute_histograms", "describe_omissions"]

NUM_BINS = 64
MAX_VALUES = 1 << 16  # of a tensor: a bin of average height is then known to 3%
MAX_PARAMETERS = 100
_BLOCK = 16  # a line of the cache: values far apart would each cost as much as all of these


@dataclass(frozen=True)
class Histogram:
    """Counts in bins of equal width: `limits[i]` is the upper end of the bin that holds `counts[i]` values.

    `low`, `high`, `total` and `squares` are the least and the greatest of the values, their sum and that of squares.
    """

    low: float
    high: float
    total: float
    squares: float
    limits: Sequence[float]
    counts: Sequence[int]


def compute_histograms(network: torch.nn.Module) -> Mapping[str, Histogram | None]:
    """`weights/<parameter>` and `gradients/<parameter>` of the first `MAX_PARAMETERS` parameters, in their order.

    Of a tensor with more than `MAX_VALUES` values so many at most are counted, evenly spread over it. None is one
    that holds NaN or infinity; one without values, and what has no gradient, is left out. Waits for the device twice.
    """
    tensors = dict(_tensors(network))
    if not tensors:
        return {}
    found: dict[str, Histogram | None] = dict.fromkeys(tensors)
    facts = torch.stack([_facts(_sampled(tensor)) for tensor in tensors.values()]).tolist()
    finite = {tag: fact for tag, fact in zip(tensors, facts, strict=True) if all(map(isfinite, fact[:2]))}
    pluralize = [_counts(_sampled(tensors[tag]), *_ends(low, high)) for tag, (low, high, *_) in finite.items()]
    for tag, counts in zip(finite, torch.stack(pluralize).tolist() if pluralize else (), strict=True):
        low, high, total, squares = finite[tag]
        found[tag] = Histogram(low, high, total, squares, _limits(low, high), counts)
    return found


def describe_omissions(network: torch.nn.Module) -> Sequence[str]:
    """In words, what of this network its histograms do not show."""
    parameters = list(network.parameters())
    sizes = [0 if torch.nn.parameter.is_lazy(parameter) else parameter.numel() for parameter in parameters]
    notes = []
    if len(sizes) > MAX_PARAMETERS:
        notes.append(f"histograms of the first {MAX_PARAMETERS} of {len(sizes)} parameters only")
    if large := sum(size > MAX_VALUES for size in sizes[:MAX_PARAMETERS]):
        which = pluralize(large, "parameter")
        notes.append(f"histograms of {which} are of a sample, {MAX_VALUES:,} values of each at most")
    return notes


def _tensors(network: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for name, parameter in islice(network.named_parameters(), MAX_PARAMETERS):
        if torch.nn.parameter.is_lazy(parameter) or not parameter.numel():
            continue
        yield f"weights/{name}", parameter.detach()
        if parameter.grad is not None:  # else frozen, or not reached by the loss
            yield f"gradients/{name}", _dense(parameter.grad.detach())


def _dense(gradient: torch.Tensor) -> torch.Tensor:
    """The rows of an embedding that a sparse gradient has, as they are; any other gradient is what it is."""
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def _sampled(tensor: torch.Tensor) -> torch.Tensor:
    """At most `MAX_VALUES` of its values, in a row, float32: `_BLOCK` neighbours from each of many places."""
    flat = tensor.reshape(-1)
    if len(flat) > MAX_VALUES:
        step = -(-len(flat) // (MAX_VALUES // _BLOCK))
        while gcd(step, len(flat)) > 1:  # places that far apart are not all in the same columns of a matrix
            step += 1
        flat = flat[: len(flat) // step * step].view(-1, step)[:, :_BLOCK].reshape(-1)
    return flat.float()


def _facts(values: torch.Tensor) -> torch.Tensor:
    """Least, greatest, sum and sum of squares."""
    exact = sum_type(values.device)
    low, high = values.aminmax()
    return torch.stack([low.to(exact), high.to(exact), values.sum(dtype=exact), values.square().sum(dtype=exact)])


def _ends(low: float, high: float) -> tuple[float, float]:
    """Where the bins begin and end: around equal values they have some width all the same."""
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _limits(low: float, high: float) -> list[float]:
    begin, end = _ends(low, high)
    return [begin + (end - begin) * (number + 1) / NUM_BINS for number in range(NUM_BINS)]


def _counts(values: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """How many values lie in each bin; the last one holds its upper end too."""
    exact = values.to(sum_type(values.device))  # gradients that vanish lie so close that float32 has no 1 / width
    bins = (exact - low).mul_(NUM_BINS / (high - low)).to(torch.int64).clamp_(0, NUM_BINS - 1)
    counts = torch.zeros(NUM_BINS, dtype=torch.int64, device=values.device)
    return counts.scatter_add_(0, bins, torch.ones_like(bins))
