"""Places on GPUs: handed out, shared only where that is wanted, taken back."""

from hypothesis import given
from hypothesis import strategies as st

from runmanager.launching.local.gpu_slots import EVERY_GPU, GpuSlots, GpuWish, Lease

ONE = GpuWish(1)


def test_each_run_has_its_own_gpu_and_the_next_waits() -> None:
    slots = GpuSlots(["0", "1"])
    first, second = slots.take(ONE), slots.take(ONE)
    assert (first, second) == (Lease(("0",), "0"), Lease(("1",), "1"))
    assert slots.take(ONE) is None
    assert first is not None
    slots.give_back(first)
    assert slots.take(ONE) == first


def test_runs_share_a_gpu_up_to_so_many_and_the_emptiest_is_taken_first() -> None:
    slots = GpuSlots(["0", "1"], runs_per_gpu=2)
    taken = [slots.take(ONE) for _ in range(5)]
    assert [each and each.visible for each in taken] == ["0", "1", "0", "1", None]


def test_a_run_may_want_several() -> None:
    slots = GpuSlots(["0", "1", "2"])
    assert slots.take(GpuWish(2)) == Lease(("0", "1"), "0,1")
    assert slots.take(GpuWish(2)) is None
    assert slots.take(ONE) == Lease(("2",), "2")


def test_who_names_an_index_takes_that_gpu_and_sees_all() -> None:
    slots = GpuSlots(["4", "6"])
    named = slots.take(GpuWish(index=1))
    assert named == Lease(("6",), "4,6")
    assert slots.take(GpuWish(index=1)) is None
    assert slots.take(ONE) == Lease(("4",), "4")
    assert slots.take(ONE) is None
    assert slots.take(GpuWish(index=7)) == Lease((), "4,6")  # the run itself says that there is none


def test_who_wants_none_sees_none_and_who_looks_takes_no_place() -> None:
    slots = GpuSlots(["0"])
    assert slots.take(GpuWish()) == Lease((), "")
    assert slots.take(EVERY_GPU) == Lease((), "0")
    assert slots.take(ONE) == Lease(("0",), "0")


def test_where_no_gpu_is_known_who_wants_one_sees_what_the_driver_sees() -> None:
    assert GpuSlots().take(ONE) == Lease((), None)
    assert GpuSlots().take(GpuWish(index=0)) == Lease((), None)
    assert GpuSlots().take(GpuWish()) == Lease((), "")
    assert GpuSlots([], are_given=True).take(ONE) == Lease((), "")


@given(
    gpus=st.integers(1, 4),
    shared=st.integers(1, 3),
    steps=st.lists(
        st.one_of(st.builds(GpuWish, st.integers(0, 4)), st.builds(GpuWish, index=st.integers(0, 4)), st.none())
    ),
)
def test_no_gpu_ever_has_more_runs_than_it_may(gpus: int, shared: int, steps: list[GpuWish | None]) -> None:
    slots = GpuSlots([str(index) for index in range(gpus)], runs_per_gpu=shared)
    held: list[Lease] = []
    for wish in steps:
        if wish is None:
            if held:
                slots.give_back(held.pop(0))
            continue
        lease = slots.take(wish)
        if lease is not None:
            assert len(lease.gpus) == (min(wish.count, gpus) if wish.index is None else wish.index < gpus)
            held.append(lease)
        else:
            assert held  # with nothing taken, everything can be had
        for gpu in slots.gpus:
            assert sum(gpu in each.gpus for each in held) <= shared
