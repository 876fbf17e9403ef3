"""Transfer to a device: nested containers, and a loader that moves its batches."""

from collections import OrderedDict, UserDict, defaultdict, namedtuple
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from runmanager import DeviceDataLoader, get_default_device, to_device
from runmanager.tracking.device.transfer import Packed

from ..conftest import images

Pair = namedtuple("Pair", "images labels")


def test_nested_tensors_are_moved_and_containers_keep_their_types() -> None:
    tensor = torch.zeros(2)
    moved = to_device({"a": [tensor, (tensor, "word")], "b": Pair(tensor, None), "c": OrderedDict(d=tensor)}, "meta")
    assert list(moved) == ["a", "b", "c"]
    assert moved["a"][0].is_meta and moved["a"][1][0].is_meta and moved["a"][1][1] == "word"
    assert isinstance(moved["a"], list) and isinstance(moved["a"][1], tuple)
    assert isinstance(moved["b"], Pair) and moved["b"].images.is_meta and moved["b"].labels is None
    assert moved["c"]["d"].is_meta
    assert not tensor.is_meta


def test_values_without_tensors_are_returned_unchanged() -> None:
    thing = object()
    assert to_device(thing, "cpu") is thing
    assert to_device("text", "cpu") == "text" and to_device([], "cpu") == []


def test_packed_tensors_are_unpacked_on_the_device() -> None:
    arrived = []

    def unpack(stored: torch.Tensor) -> torch.Tensor:
        arrived.append((stored.dtype, stored.device.type))
        return stored.to(torch.float32)

    images, labels = to_device([Packed(torch.ones(3, dtype=torch.uint8), unpack), torch.zeros(3)], "meta")
    assert arrived == [(torch.uint8, "meta")]
    assert images.is_meta and images.dtype == torch.float32 and labels.is_meta


def test_a_module_is_moved_in_place() -> None:
    module = nn.Linear(2, 2)
    assert to_device(module, torch.device("meta")) is module
    assert all(parameter.is_meta for parameter in module.parameters())


@pytest.mark.parametrize(
    ("target", "pinned", "runs_ahead"),
    [("cuda", True, True), ("cuda:1", True, True), ("xpu", True, True), ("cuda", False, False), ("mps", True, False)],
)
def test_only_pinned_memory_is_copied_asynchronously(
    monkeypatch: pytest.MonkeyPatch, target: str, pinned: bool, runs_ahead: bool
) -> None:
    calls = []
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *args, **options: calls.append((args, options)) or self)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: pinned)
    to_device([torch.zeros(1)], target)
    assert calls == [((target,), {"non_blocking": runs_ahead})]


def test_moving_to_the_cpu_does_not_use_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    def started_cuda(self: torch.Tensor) -> bool:
        raise AssertionError("is_pinned() starts CUDA up")

    monkeypatch.setattr(torch.Tensor, "is_pinned", started_cuda)
    assert torch.equal(to_device(torch.ones(2), "cpu"), torch.ones(2))


def test_a_device_loader_has_the_length_and_batches_of_its_loader() -> None:
    plain = DataLoader(images(), batch_size=20)
    wrapped = DeviceDataLoader(plain, "meta")
    assert len(wrapped) == 3 and wrapped.dl is plain and wrapped.device == torch.device("meta")
    for _ in range(2):
        assert [(batch.shape[0], batch.is_meta, labels.is_meta) for batch, labels in wrapped] == [
            (20, True, True),
            (20, True, True),
            (10, True, True),
        ]
    on_host = list(DeviceDataLoader(plain, "cpu"))
    assert all(torch.equal(one[0], other[0]) for one, other in zip(on_host, plain, strict=True))
    with pytest.raises(TypeError):
        len(DeviceDataLoader(iter([]), "cpu"))


def test_the_default_device_is_the_accelerator_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert get_default_device() == torch.device("cpu")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda:0"))
    assert get_default_device() == torch.device("cuda")


class Enc(UserDict[str, torch.Tensor]):
    """Moves itself, as encodings of tokenizers do."""

    def to(self, device: str) -> "Enc":
        return Enc({name: value.to(device) for name, value in self.items()})


def nested_batches() -> list[object]:
    inside: list[object] = [torch.zeros(2)]
    inside.append(inside)
    packed = nn.utils.rnn.pack_sequence([torch.zeros(3, 1), torch.zeros(2, 1)])
    return [
        *({"a": [torch.zeros(2), ("word", None)]}, Pair(torch.zeros(1), 2), OrderedDict(a=torch.zeros(1))),
        *(defaultdict(list, a=torch.zeros(1)), Enc(a=torch.zeros(1)), packed, inside, torch.zeros(2).to_sparse()),
    ]


def test_what_is_there_already_stays_the_same_object() -> None:
    for batch in nested_batches():
        assert to_device(batch, "cpu") is batch
    meta = [torch.zeros(2, device="meta")]
    assert to_device(meta, "cpu") is meta, "it has no data to move"


def test_what_moves_keeps_its_type() -> None:
    for batch in nested_batches()[:-2]:
        assert type(to_device(batch, "meta")) is type(batch)
    named = to_device(defaultdict(list, a=torch.zeros(1)), "meta")
    assert named["a"].is_meta and named["missing"] == []
    assert to_device(Enc(a=torch.zeros(1)), "meta")["a"].is_meta


def test_a_container_that_cannot_be_read_stays_as_it_is() -> None:
    class Closed(dict[str, torch.Tensor]):
        def items(self) -> Any:
            raise RuntimeError("closed")

    closed = Closed(a=torch.zeros(1))
    assert to_device(closed, "cpu") is closed and to_device([closed], "meta")[0] is closed
