"""Of what a resumed process wrote again, the later values count; with `purge_step` those that TensorBoard keeps."""

from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from runmanager.results.tfevents.reader import EventFolder, Series, WrittenFile, read_event_files, values_that_count

Points = list[tuple[int, float]]


def points(scalars: Mapping[str, Series]) -> dict[str, Points]:
    return {tag: list(zip(each.steps, each.values, strict=True)) for tag, each in scalars.items()}


def read(folder: Path) -> EventFolder:
    return read_event_files(sorted(folder.glob("*tfevents*")))


def of_tensorboard(folder: Path) -> dict[str, Points]:
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    scalars = {tag: [(each.step, each.value) for each in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    return {tag: values for tag, values in scalars.items() if values}


class Folder:
    """Event files of processes that lived one after another, in a folder; a value tells its process: 3.5 of the 3rd."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.num_files = 0

    def write(self, purge_step: int | None = None, **steps: Iterable[int]) -> Path:
        self.num_files += 1
        own = self.path / "new"
        with SummaryWriter(own, purge_step=purge_step) as writer:
            for tag, each in steps.items():
                for step in each:
                    writer.add_scalar(tag, self.num_files + 0.5, step)
        (file,) = own.iterdir()
        # Names of one second and one process are not in the order of their beginnings: `.9` comes after `.10`.
        return file.rename(self.path / f"events.out.tfevents.{self.num_files}")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def written(*parts: tuple[int, Iterable[int]]) -> Points:
    """Points at steps, given the number of the process that wrote them."""
    return [(step, number + 0.5) for number, steps in parts for step in steps]


def test_what_a_resumed_process_wrote_again_counts(folder: Folder) -> None:
    folder.write(loss=range(20), stopped=range(20), test=[0])
    folder.write(loss=range(10, 15), later=[3, 4], test=[0])
    found = read(folder.path)
    assert points(found.scalars) == {
        "loss": written((1, range(10)), (2, range(10, 15))),
        "stopped": written((1, range(20))),
        "later": written((2, [3, 4])),
        "test": written((1, [0]), (2, [0])),  # a single step replaces nothing
    }
    assert found.replaced == {"loss": 10}


def test_each_restart_of_a_chain_replaces_what_was_before_it(folder: Folder) -> None:
    folder.write(loss=range(20))
    folder.write(loss=range(10, 18))
    folder.write(loss=range(12, 14))
    folder.write(loss=range(6, 9))
    folder.write(loss=[2])
    found = read(folder.path)
    assert points(found.scalars) == {"loss": written((1, range(6)), (4, range(6, 9)), (5, [2]))}
    assert found.replaced == {"loss": 14 + 8 + 2}


def test_writers_of_the_same_time_replace_nothing(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as first, SummaryWriter(tmp_path) as second:
        for step in range(5):
            first.add_scalar("loss", step, step)
        for step in range(3):
            second.add_scalar("loss", 10 + step, step)
        first.add_scalar("other", 1.0, 0)
    found = read(tmp_path)
    assert sorted(found.scalars["loss"].steps) == [0, 0, 1, 1, 2, 2, 3, 4]
    assert found.replaced == {}


def test_only_whole_events_tell_when_a_process_lived(folder: Folder) -> None:
    torn = folder.write(loss=range(20))
    torn.write_bytes(torn.read_bytes()[:-7])
    later = folder.write(loss=range(10, 15))
    whole = later.read_bytes()
    for kept, expected in (
        (len(whole), written((1, range(10)), (2, range(10, 15)))),
        (len(whole) - 1, written((1, range(10)), (2, range(10, 14)))),
        (30, written((1, range(19)))),  # its first event is torn
        (0, written((1, range(19)))),
    ):
        later.write_bytes(whole[:kept])
        assert points(read(folder.path).scalars) == {"loss": expected}


@pytest.mark.parametrize(
    "processes",
    [
        [(0, {"loss": range(20), "stopped": range(20), "test": [0]}), (10, {"loss": range(10, 15), "test": [0]})],
        [(None, {"loss": range(20), "stopped": range(20)}), (10, {"loss": range(10, 15)})],
        [
            (0, {"loss": range(20)}),
            (10, {"loss": [10]}),
            (5, {"loss": range(8, 12), "a": [1, 2]}),
            (11, {"loss": [11]}),
        ],
        [(0, {"loss": range(20)}), (15, {"loss": range(3, 18)})],
        [(0, {"loss": range(20)}), (0, {"other": [1]})],
    ],
    ids=["resumed", "first without", "chain", "earlier steps again", "all gone"],
)
def test_with_purge_step_it_is_what_tensorboard_keeps(
    folder: Folder, processes: list[tuple[int | None, dict[str, Iterable[int]]]]
) -> None:
    for purge_step, steps in processes:
        folder.write(purge_step, **steps)
    found = read(folder.path)
    assert points(found.scalars) == of_tensorboard(folder.path)
    assert found.replaced == {}


def test_a_session_start_within_a_file_counts_as_in_tensorboard(folder: Folder) -> None:
    parts = [folder.write(purge, loss=steps).read_bytes() for purge, steps in ((None, range(9)), (4, range(4, 6)))]
    for path in folder.path.glob("*tfevents*"):
        path.unlink()
    (folder.path / "events.out.tfevents.1").write_bytes(b"".join(parts))
    assert points(read(folder.path).scalars) == of_tensorboard(folder.path)


a_file = st.builds(
    lambda begin, lived, session_step, steps: (begin, begin + lived, session_step, steps),
    st.integers(0, 12),
    st.integers(0, 4),
    st.none() | st.none() | st.integers(-1, 8),
    st.dictionaries(st.sampled_from(["a", "b"]), st.lists(st.integers(-2, 9), min_size=1, max_size=6)),
)


@given(st.lists(a_file, max_size=6))
@settings(max_examples=200)
def test_the_rule_point_by_point(files: list[tuple[int, int, int | None, dict[str, list[int]]]]) -> None:
    files.sort(key=lambda file: file[0])
    expected: dict[str, Points] = {}
    replaced: dict[str, int] = {}
    for number, (_, end, _, tags) in enumerate(files):
        for tag, steps in tags.items():
            for step in steps:
                if any(session is not None and session <= step for _, _, session, _ in files[number + 1 :]):
                    continue
                again = [
                    steps_of[tag]
                    for begin, _, session, steps_of in files
                    if begin > end and session is None and tag in steps_of
                ]
                if any(len(set(each)) > 1 and min(each) <= step for each in again):
                    replaced[tag] = replaced.get(tag, 0) + 1
                else:
                    expected.setdefault(tag, []).append((step, float(number)))
    made = [
        WrittenFile(
            float(begin),
            float(end),
            {
                tag: Series(array("q", steps), array("d", [number] * len(steps)), array("d", [end] * len(steps)))
                for tag, steps in tags.items()
            },
            session,
        )
        for number, (begin, end, session, tags) in enumerate(files)
    ]
    scalars, counts = values_that_count(made)
    assert (points(scalars), counts) == (expected, replaced)
