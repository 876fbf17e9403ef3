"""Prefetched batches: correct in any order of the streams' work, and timed as transfer.

The fake device does nothing by itself: work is queued in its streams until the test runs it, with one stream as far
ahead of the other as their events allow.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from runmanager.tracking.device.transfer import Packed, PendingBatch, SideStream, prefetch
from runmanager.tracking.epoch import Epoch, EpochContext
from runmanager.tracking.timing.timer import PhaseTimer

from ..conftest import Timeline

HOST = torch.device("cpu")
NUM_BATCHES = 6


class FakeEvent:
    def __init__(self) -> None:
        self.has_passed = False


class FakeStream:
    def __init__(self, device: object = None) -> None:
        self.work: deque[Callable[[], None] | FakeEvent] = deque()

    def record_event(self) -> FakeEvent:
        event = FakeEvent()
        self.work.append(lambda: setattr(event, "has_passed", True))
        return event

    def wait_event(self, event: FakeEvent) -> None:
        self.work.append(event)

    def wait_stream(self, other: "FakeStream") -> None:
        self.wait_event(other.record_event())

    def do_one(self) -> bool:
        """Do the next piece of work; return False if there is none, or if it waits."""
        if not self.work or (isinstance(self.work[0], FakeEvent) and not self.work[0].has_passed):
            return False
        work = self.work.popleft()
        if not isinstance(work, FakeEvent):
            work()
        return True


class FakeModule:
    """Stands for `torch.cuda` of a CUDA device."""

    Stream = FakeStream

    def __init__(self) -> None:
        self.main = self.current = FakeStream()

    def current_stream(self, device: object) -> FakeStream:
        return self.current

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        self.current = stream
        yield
        self.current = self.main


class Device:
    """Two streams, and memory for two batches, which is reused as soon as the host has continued."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.module = FakeModule()
        monkeypatch.setattr(torch, "get_device_module", lambda device: self.module)
        self.copier = SideStream(HOST)
        self.side = self.copier._stream
        memory = {torch.uint8: deque(torch.zeros(2, 2, 3).byte()), torch.int64: deque(torch.zeros(2, 2).long())}
        real = torch.Tensor.copy_

        def given_out(like: torch.Tensor, device: object) -> torch.Tensor:
            memory[like.dtype].rotate()
            return memory[like.dtype][0]

        def copy_later(place: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
            assert non_blocking and self.module.current is self.side
            self.side.work.append(lambda: (self.log.append(f"copy {int(source.max())}"), real(place, source))[0])
            return place

        monkeypatch.setattr(torch, "empty_like", given_out)
        monkeypatch.setattr(torch.Tensor, "copy_", copy_later)

    def step(self, images: torch.Tensor, labels: torch.Tensor, seen: list[Any]) -> None:
        """Queue a step that reads the batch when it runs."""
        self.module.main.work.append(
            lambda: (self.log.append(f"step {int(labels.max())}"), seen.append((images.tolist(), labels.tolist())))[0]
        )

    def run(self, *, first: FakeStream) -> None:
        """Do all queued work, that of stream `first` as early as possible."""
        other = self.side if first is self.module.main else self.module.main
        while first.do_one() or other.do_one():
            pass
        assert not first.work and not other.work, "the streams wait for each other"


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


def batches(count: int = NUM_BATCHES) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(torch.full((2, 3), n, dtype=torch.uint8), torch.full((2,), n)) for n in range(1, count + 1)]


@pytest.mark.parametrize("ahead", ["main", "side"])
@pytest.mark.parametrize("count", [0, 1, 2, NUM_BATCHES])
def test_a_step_sees_its_batch_whichever_stream_is_ahead(device: Device, ahead: str, count: int) -> None:
    seen: list[Any] = []
    for sent in prefetch(batches(count), device.copier):
        device.step(*sent.arrived(), seen)
    device.run(first=device.side if ahead == "side" else device.module.main)
    assert seen == [(images.tolist(), labels.tolist()) for images, labels in batches(count)]


def test_a_batch_is_copied_during_the_step_before(device: Device) -> None:
    for sent in prefetch(batches(), device.copier):
        device.step(*sent.arrived(), [])
    device.run(first=device.side)
    for number in range(2, NUM_BATCHES + 1):
        assert device.log.index(f"copy {number}") < device.log.index(f"step {number - 1}")


def test_leaving_the_loop_waits_for_the_copy_before_its_memory_is_reused(device: Device) -> None:
    ahead = prefetch(batches(), device.copier)
    next(ahead)
    ahead.close()
    device.module.main.work.append(lambda: device.log.append("others"))
    device.run(first=device.module.main)
    assert device.log.index("copy 2") < device.log.index("others")


class SlowCopier(Timeline):
    """Sends immediately; a batch arrives a second after it is waited for."""

    def send(self, batch: Any) -> PendingBatch:
        return PendingBatch(batch, None, self)

    def arrive(self, sent: PendingBatch) -> None:
        self.now += 1.0


def test_waiting_for_a_prefetched_batch_is_transfer() -> None:
    copier = SlowCopier()
    timer = PhaseTimer(copier)
    timer.start()
    epoch = Epoch(1, EpochContext(timer=timer, device=HOST))
    for images, labels in epoch.batches(prefetch(batches(3), copier)):
        copier.now += 0.25
        epoch.track(images.sum().float(), samples=len(labels))
    for _, _labels in epoch.eval_batches(prefetch(batches(1), copier)):
        pass
    record, _ = epoch.close()
    assert (record.transfer_seconds, record.compute_seconds, record.data_seconds) == (3.0, 0.75, 0.0)
    assert record.samples == 6


def test_packed_tensors_are_unpacked_on_the_device(device: Device) -> None:
    unpacked: list[torch.Tensor] = []

    def unpack(stored: torch.Tensor) -> torch.Tensor:
        unpacked.append(stored)
        return stored

    (images, labels) = batches(1)[0]
    timer = PhaseTimer(SlowCopier())
    timer.start()
    epoch = Epoch(1, EpochContext(timer=timer, device=HOST))
    loader = prefetch([(Packed(images, unpack), labels)], device.copier)
    taken = epoch.batches(loader)
    arrived, _ = next(taken)
    assert unpacked == [arrived] and arrived is not images
    taken.close()
