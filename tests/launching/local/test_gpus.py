"""GPUs of a launcher: slots taken, shared up to a limit, and released."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from runmanager.launching.local.gpus import EVERY_GPU, GpuMarks, GpuRequest, GpuSlots, Lease

ONE = GpuRequest(1)


def test_each_run_has_its_own_gpu_and_the_next_waits() -> None:
    slots = GpuSlots(["0", "1"])
    first, second = slots.take(ONE), slots.take(ONE)
    assert (first, second) == (Lease(("0",), "0"), Lease(("1",), "1"))
    assert slots.take(ONE) is None
    assert first is not None
    slots.release(first)
    assert slots.take(ONE) == first


def test_runs_share_a_gpu_up_to_the_limit_and_the_emptiest_is_taken_first() -> None:
    slots = GpuSlots(["0", "1"], runs_per_gpu=2)
    taken = [slots.take(ONE) for _ in range(5)]
    assert [each and each.visible for each in taken] == ["0", "1", "0", "1", None]


def test_a_run_may_request_several_gpus() -> None:
    slots = GpuSlots(["0", "1", "2"])
    assert slots.take(GpuRequest(2)) == Lease(("0", "1"), "0,1")
    assert slots.take(GpuRequest(2)) is None
    assert slots.take(ONE) == Lease(("2",), "2")


def test_a_run_that_names_an_index_takes_that_gpu_and_sees_all() -> None:
    slots = GpuSlots(["4", "6"])
    named = slots.take(GpuRequest(index=1))
    assert named == Lease(("6",), "4,6")
    assert slots.take(GpuRequest(index=1)) is None
    assert slots.take(ONE) == Lease(("4",), "4")
    assert slots.take(ONE) is None
    assert slots.take(GpuRequest(index=7)) == Lease((), "4,6")  # the run itself reports it


def test_a_request_for_no_gpu_sees_none_and_seeing_every_gpu_takes_no_slot() -> None:
    slots = GpuSlots(["0"])
    assert slots.take(GpuRequest()) == Lease((), "")
    assert slots.take(EVERY_GPU) == Lease((), "0")
    assert slots.take(ONE) == Lease(("0",), "0")


def test_where_no_gpu_is_known_a_run_that_requests_one_sees_what_the_driver_sees() -> None:
    assert GpuSlots().take(ONE) == Lease((), None)
    assert GpuSlots().take(GpuRequest(index=0)) == Lease((), None)
    assert GpuSlots().take(GpuRequest()) == Lease((), "")
    assert GpuSlots([], are_given=True).take(ONE) == Lease((), "")


def test_two_drivers_take_different_gpus_while_they_can(tmp_path: Path) -> None:
    one, other = (GpuSlots(["GPU-a", "GPU-b"], marks=GpuMarks(tmp_path / "gpus")) for _ in range(2))
    first, second = one.take(ONE), other.take(ONE)
    assert first == Lease(("GPU-a",), "GPU-a") and second == Lease(("GPU-b",), "GPU-b")
    shared = other.take(ONE)
    assert shared == first  # rather than none: the other driver may never end
    assert other.take(ONE) is None
    for lease in (second, shared):
        other.release(lease)
    assert one.take(ONE) == second and other.take(GpuRequest(index=0)) == Lease(("GPU-a",), "GPU-a,GPU-b")


def test_without_a_place_for_marks_each_driver_takes_the_first(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for marks in (GpuMarks(), GpuMarks(tmp_path / "file")):
        assert [GpuSlots(["GPU-a", "GPU-b"], marks=marks).take(ONE) for _ in range(2)] == [
            Lease(("GPU-a",), "GPU-a")
        ] * 2


@given(
    gpus=st.integers(1, 4),
    shared=st.integers(1, 3),
    steps=st.lists(
        st.one_of(st.builds(GpuRequest, st.integers(0, 4)), st.builds(GpuRequest, index=st.integers(0, 4)), st.none())
    ),
)
def test_no_gpu_ever_exceeds_runs_per_gpu(gpus: int, shared: int, steps: list[GpuRequest | None]) -> None:
    slots = GpuSlots([str(index) for index in range(gpus)], runs_per_gpu=shared)
    held: list[Lease] = []
    for request in steps:
        if request is None:
            if held:
                slots.release(held.pop(0))
            continue
        lease = slots.take(request)
        if lease is not None:
            assert len(lease.gpus) == (min(request.count, gpus) if request.index is None else request.index < gpus)
            held.append(lease)
        else:
            assert held  # with nothing taken, every request is met
        for gpu in slots.gpus:
            assert sum(gpu in each.gpus for each in held) <= shared
