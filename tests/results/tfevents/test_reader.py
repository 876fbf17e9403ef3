"""Event files of other programs are read as TensorBoard reads them, up to the first damaged record."""

import math
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DT_BFLOAT16
from tensorboard.plugins.scalar.metadata import create_summary_metadata
from tensorboard.summary.writer.record_writer import RecordWriter, masked_crc32c
from tensorboard.util.tensor_util import make_ndarray, make_tensor_proto
from torch.utils.tensorboard import SummaryWriter

from runmanager.results.tfevents.reader import EventFolder, read_event_files

ABOUT = create_summary_metadata(display_name=None, description=None)


def write(path: Path, *events: Event) -> Path:
    with path.open("wb") as file:
        writer = RecordWriter(file)
        for event in (Event(wall_time=1.5, file_version="brain.Event:2"), *events):
            writer.write(event.SerializeToString())
    return path


def simple(tag: str, value: float, step: int = 0, time: float = 2.5) -> Event:
    return Event(wall_time=time, step=step, summary=Summary(value=[Summary.Value(tag=tag, simple_value=value)]))


def tensor(tag: str, proto: TensorProto, step: int = 0, *, about: bool = True) -> Event:
    value = Summary.Value(tag=tag, tensor=proto, metadata=ABOUT if about else None)
    return Event(wall_time=2.5, step=step, summary=Summary(value=[value]))


def together(numbers: Mapping[str, float], step: int = 0) -> Event:
    several = [Summary.Value(tag=tag, simple_value=number) for tag, number in numbers.items()]
    return Event(wall_time=2.5, step=step, summary=Summary(value=several))


def values(found: EventFolder) -> dict[str, list[tuple[float, int, float]]]:
    return {tag: list(zip(each.times, each.steps, each.values, strict=True)) for tag, each in found.scalars.items()}


def test_files_of_pytorch_are_read_as_by_tensorboard(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        for step in [*range(5), 127, 128, 300, 70_000, 2**40]:
            writer.add_scalar("a", step / 7, step)
            writer.add_scalar("train/loss, ä", math.sin(step), step)
            writer.add_scalar("odd", (0.0, -0.0, math.nan, math.inf, 1e-45)[step % 5], step)
            writer.add_scalar("new", 0.1 * step, step, new_style=True)
            writer.add_histogram("weights", np.arange(9.0), step)
            writer.add_text("words", "no number", step)
        writer.add_image("image", np.zeros((3, 4, 4), np.uint8))
    found = read_event_files(sorted(tmp_path.iterdir()))
    theirs = EventAccumulator(str(tmp_path), size_guidance={"scalars": 0, "tensors": 0}).Reload()
    expected = {
        tag: [(each.wall_time, each.step, each.value) for each in theirs.Scalars(tag)]
        for tag in theirs.Tags()["scalars"]
    }
    expected["new"] = [
        (each.wall_time, each.step, float(make_ndarray(each.tensor_proto))) for each in theirs.Tensors("new")
    ]
    assert expected.keys() == {"a", "train/loss, ä", "odd", "new"}
    assert {tag: repr(each) for tag, each in values(found).items()} == {
        tag: repr(each) for tag, each in expected.items()
    }
    assert (found.hparams, found.damage) == ({}, [])


def test_hyperparameters_are_read(tmp_path: Path) -> None:
    given = {"lr": 0.1, "batch_size": 64, "optimizer": "adam", "amsgrad": True}
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_hparams(given, {"accuracy": 0.5}, run_name=".")
    found = read_event_files(sorted(tmp_path.rglob("*tfevents*")))
    assert found.hparams == given
    assert found.scalars["accuracy"].values.tolist() == [0.5]


@pytest.mark.parametrize(
    "number",
    [
        *(np.float32(0.1), np.float32(0), np.float64(0.1), np.float64(0), np.float16(0.5), np.int32(-3), np.int64(-3)),
        *(np.int64(2**40), np.uint8(200), np.int8(-1), np.int16(-2), np.bool_(True), np.uint32(7), np.uint64(7)),
        np.int32(0),
    ],
    ids=lambda number: f"{number.dtype}-{number}",
)
def test_a_tensor_with_one_number_is_a_scalar(tmp_path: Path, number: np.generic) -> None:
    spelled = make_tensor_proto(number)
    packed = TensorProto(dtype=spelled.dtype, tensor_content=number.tobytes())
    events = [tensor("x", proto, step) for step, proto in enumerate([spelled, packed, spelled])]
    found = read_event_files([write(tmp_path / "tfevents", *events)])
    assert found.scalars["x"].values.tolist() == [float(number)] * 3
    assert found.scalars["x"].steps.tolist() == [0, 1, 2]


def test_other_values_than_scalars_are_ignored(tmp_path: Path) -> None:
    events = [
        tensor("vector", make_tensor_proto(np.zeros(1, np.float32))),
        tensor("text", make_tensor_proto("words")),
        tensor("without a plugin name", make_tensor_proto(np.float32(1)), about=False),
        tensor("half", TensorProto(dtype=DT_BFLOAT16, half_val=[0x3FC0])),
        tensor("later", make_tensor_proto(np.float32(1))),
        tensor("later", make_tensor_proto(np.float32(2)), 1, about=False),
    ]
    found = read_event_files([write(tmp_path / "tfevents", *events)])
    assert {tag: each.values.tolist() for tag, each in found.scalars.items()} == {"half": [1.5], "later": [1.0, 2.0]}


def test_events_of_any_shape_are_read(tmp_path: Path) -> None:
    """Events that resemble an earlier one are not mistaken for it."""
    both = Summary(value=[Summary.Value(tag=tag, simple_value=3.0) for tag in "ab"])
    events = [
        simple("a", 1.0, 1),
        simple("a", 2.0, 2),
        Event(wall_time=2.5, step=3, summary=both),
        simple("a", 4.0, -4),
        Event(step=5, summary=Summary(value=[Summary.Value(tag="a", simple_value=5.0)])),
        Event(summary=Summary(value=[Summary.Value(tag="a", simple_value=6.0)])),
        simple("a", 7.0, 0),
        Event(wall_time=2.5, step=8, graph_def=b"graph"),
        simple("aa", 9.0, 9),
        simple("a", 10.0, 300),
    ]
    found = read_event_files([write(tmp_path / "tfevents", *events)])
    assert values(found) == {
        "a": [
            *((2.5, 1, 1.0), (2.5, 2, 2.0), (2.5, 3, 3.0), (2.5, -4, 4.0), (0.0, 5, 5.0), (0.0, 0, 6.0)),
            *((2.5, 0, 7.0), (2.5, 300, 10.0)),
        ],
        "b": [(2.5, 3, 3.0)],
        "aa": [(2.5, 9, 9.0)],
    }


@given(
    logged=st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "loss/train"]),
            st.floats(width=32),
            st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300),
            st.sampled_from(["one", "tensor", "several"]),
        ),
        max_size=30,
    )
)
@settings(max_examples=60)
def test_all_logged_values_are_read(
    tmp_path_factory: pytest.TempPathFactory, logged: list[tuple[str, float, int, str]]
) -> None:
    make: dict[str, Callable[[str, float, int], Event]] = {
        "one": simple,
        "tensor": lambda tag, value, step: tensor(f"{tag}.t", make_tensor_proto(np.float32(value)), step),
        "several": lambda tag, value, step: together({tag: value, f"{tag}.s": 0.5, "a": -value}, step),
    }
    path = tmp_path_factory.getbasetemp() / "tfevents.logged"
    write(path, *(make[kind](tag, value, step) for tag, value, step, kind in logged))
    expected: dict[str, list[tuple[float, int, float]]] = {}
    for tag, value, step, kind in logged:
        numbers = {f"{tag}.t" if kind == "tensor" else tag: value}
        if kind == "several":
            numbers = {tag: value, f"{tag}.s": 0.5, "a": -value}
        for name, number in numbers.items():
            expected.setdefault(name, []).append((2.5, step, number))
    assert repr(values(read_event_files([path]))) == repr(expected)


@pytest.fixture
def some(tmp_path: Path) -> Path:
    return write(tmp_path / "tfevents", *(simple("a", 0.5 + step, step) for step in range(4)))


def test_a_truncated_file_is_read_up_to_its_end(some: Path) -> None:
    data = some.read_bytes()
    whole = read_event_files([some]).scalars["a"].values.tolist()
    assert whole == [0.5, 1.5, 2.5, 3.5]
    seen = set()
    for end in range(len(data)):
        some.write_bytes(data[:end])
        found = read_event_files([some])
        kept = found.scalars["a"].values.tolist() if found.scalars else []
        assert kept == whole[: len(kept)]
        assert found.damage == []
        seen.add(len(kept))
    assert seen == {0, 1, 2, 3}


def test_reading_ends_at_a_damaged_record_which_is_reported(some: Path) -> None:
    data = some.read_bytes()
    whole = read_event_files([some]).scalars["a"].values.tolist()
    for at in range(len(data)):
        some.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        found = read_event_files([some])
        kept = found.scalars["a"].values.tolist() if found.scalars else []
        in_length_crc = kept == whole  # not verified for complete records, as the message has a checksum
        assert kept == whole[: len(kept)]
        assert in_length_crc or (len(found.damage) == 1 and str(some) in found.damage[0])


@given(data=st.binary(max_size=80) | st.just(bytes(4096)))
@settings(max_examples=60)
def test_arbitrary_files_do_not_raise(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "tfevents.any"
    path.write_bytes(data)
    assert read_event_files([path]).scalars == {}
    with path.open("wb") as file:
        RecordWriter(file).write(data)  # a complete record with arbitrary content
    read_event_files([path])


def test_fields_with_an_unexpected_wire_type_are_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "tfevents", simple("a", 0.5, 1))
    odd = [
        bytes([5 << 3 | 2, 2, 1 << 3, 7]),  # a summary whose value is a number
        bytes([2 << 3, *[0xFF] * 9, 0x7F]) + simple("b", 2.0).SerializeToString()[9:],  # a step beyond 64 bits: -1
    ]
    with path.open("ab") as file:
        for message in odd:
            RecordWriter(file).write(message)
    found = read_event_files([path])
    assert found.damage == []
    assert {tag: each.steps.tolist() for tag, each in found.scalars.items()} == {"a": [1], "b": [-1]}


def test_a_tag_that_is_no_text_is_damage(tmp_path: Path) -> None:
    path = write(tmp_path / "tfevents", simple("a", 0.5, 1))
    with path.open("ab") as file:
        RecordWriter(file).write(simple("b", 2.0).SerializeToString().replace(b"b", b"\xff"))
    found = read_event_files([path])
    assert list(found.scalars) == ["a"]
    assert found.damage == [f"{path} is damaged, and was read up to there: a record holds no event"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkfifo, "is not a regular file"),
        (lambda path: path.symlink_to("nowhere"), "is a link, which is not followed"),
    ],
    ids=["pipe", "dangling link"],
)
def test_an_unreadable_file_is_reported_and_the_others_are_read(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    paths = [write(tmp_path / "tfevents.1", simple("a", 0.5, 1)), tmp_path / "tfevents.2"]
    make(paths[1])
    found = read_event_files(paths)
    assert found.scalars["a"].values.tolist() == [0.5]
    assert len(found.damage) == 1
    assert found.damage[0].startswith(str(paths[1])) and message in found.damage[0]


def test_a_record_of_impossible_length_is_damage(tmp_path: Path) -> None:
    length = struct.pack("<Q", 1 << 60)
    path = tmp_path / "tfevents"
    path.write_bytes(length + struct.pack("<I", masked_crc32c(length)) + b"more")
    assert "does not match" in read_event_files([path]).damage[0]


def test_files_of_a_folder_are_read_in_order(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"tfevents.{at}", simple("a", float(at), at)) for at in range(3)]
    assert read_event_files(paths).scalars["a"].steps.tolist() == [0, 1, 2]
