"""Values that a program logs: reduced in the record they belong to, each of them in TensorBoard, none waited for."""

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib.figure
import numpy as np
import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from runmanager import RunManager
from runmanager.errors import UsageError
from runmanager.records.storage.reader import StoredRun, read_run
from runmanager.tracking.epoch_metrics import step_values
from runmanager.tracking.epoch_metrics.loss_buffer import sum_type
from runmanager.tracking.epoch_metrics.step_values import StepValues
from runmanager.tracking.lifecycle.run_values import image_pixels
from runmanager.tracking.torch_internals import storage_id

OnlyRun = Callable[[], StoredRun]
REDUCED = {"last": 2.0, "mean": 3.0, "sum": 9.0, "min": 1.0, "max": 6.0}


class Mean:
    """An object like those of torchmetrics."""

    def __init__(self, value: float) -> None:
        self.value, self.num_resets = value, 0

    def compute(self) -> float:
        return self.value

    def reset(self) -> None:
        self.num_resets += 1


def events_of(run: StoredRun) -> EventAccumulator:
    events = EventAccumulator(str(run.paths.root))
    events.Reload()
    return events


def test_values_of_steps_are_reduced_in_their_record(tmp_path: Path, only_run: OnlyRun) -> None:
    metric = Mean(0.5)
    with RunManager(tmp_path / "sweep", console=False).run({}, nn.Linear(1, 1)) as run:
        run.log({"before/any": 4})
        for epoch in run.epochs(2):
            epoch.track(1.0, samples=1)
            for value in (1.0, torch.tensor(6.0), np.float32(2)):
                for name in REDUCED:
                    run.log({name: value}, reduce=name)  # type: ignore[arg-type]
            run.log(f1=metric)
            with pytest.raises(UsageError, match=r"one method in an epoch, got log\(\) after run\.log\(\)"):
                epoch.log(last=1.0)
        run.log({"before/any": 8}, step=70)
        run.log(after=math.inf)
    stored = only_run()
    assert [epoch.metrics for epoch in stored.epochs] == [REDUCED | {"f1": 0.5}] * 2 and metric.num_resets == 2
    assert stored.record.summary == {"before/any": 8.0, "after": None}
    events = events_of(stored)
    assert [(event.step, event.value) for event in events.Scalars("step/sum")] == [
        *((1, 1.0), (2, 6.0), (3, 2.0), (4, 1.0), (5, 6.0), (6, 2.0))
    ]
    assert [(event.step, event.value) for event in events.Scalars("step/before/any")] == [(1, 4.0), (70, 8.0)]


def test_no_value_on_a_device_is_waited_for(tmp_path: Path) -> None:
    """A tensor on the meta device raises when it is read."""
    values, unreadable = StepValues(), torch.ones((), device="meta")
    for step in range(100):
        values.add(unreadable, step)
    with pytest.raises(NotImplementedError):
        values.read()

    run = RunManager(tmp_path / "sweep", sinks=[]).run({}, nn.Linear(1, 1))
    epoch = run.begin_epoch() if run.begin(nn.Linear(1, 1), None) is None else None
    assert epoch is not None
    run.log(loss_a=unreadable)
    run.log({"loss_b": unreadable}, reduce="mean", step=3)
    with pytest.raises(NotImplementedError):
        run.end_epoch(epoch)
    run.end(RuntimeError("unreadable"))


def test_no_device_needs_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    values, convert = StepValues(), torch.Tensor.double
    monkeypatch.setattr(step_values, "sum_type", lambda device: torch.float32)
    monkeypatch.setattr(step_values, "synchronize", lambda device: None)

    def double(tensor: torch.Tensor) -> torch.Tensor:
        if values._buffer is not None and storage_id(tensor) == storage_id(values._buffer):
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64")
        return convert(tensor)

    monkeypatch.setattr(torch.Tensor, "double", double)
    for step in range(200):
        values.add(torch.tensor(float(step)), step)
    assert list(values.read().values) == list(range(200))
    has_float64 = SimpleNamespace(has_fp64=False)
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda device: has_float64)
    assert [sum_type(torch.device(name)) for name in ("mps", "xpu", "cuda")] == [
        *(torch.float32, torch.float32),
        torch.float64,
    ]
    has_float64.has_fp64 = True
    assert sum_type(torch.device("xpu")) is torch.float64


def test_a_device_that_is_left_has_sent_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    values, waited = StepValues(), []
    monkeypatch.setattr(step_values, "synchronize", waited.append)
    values.add(torch.tensor(1.0), 0)
    values.add(torch.ones((), device="meta"), 1)
    assert waited == [torch.device("cpu")]


def test_values_keep_their_order_and_precision_between_devices() -> None:
    values = StepValues()
    values.reduce = "sum"
    exact = [0.1 * number for number in range(300)]
    for step, value in enumerate(exact):
        values.add(torch.tensor(value, dtype=torch.float64) if step % 7 else value, step)
    points = values.read()
    assert (list(points.steps), list(points.values)) == (list(range(300)), exact)
    assert values.result() == pytest.approx(sum(exact)) and list(values.read().values) == []
    values.add(math.nan, 300)
    for reduce in ("last", "mean", "sum", "min", "max"):
        values.reduce = reduce  # type: ignore[assignment]
        assert math.isnan(values.result())


def test_the_summary_is_a_mapping_that_survives_a_kill(tmp_path: Path, only_run: OnlyRun) -> None:
    run = RunManager(tmp_path / "sweep", console=False).run({}, nn.Linear(1, 1))
    run.summary["first"] = torch.tensor(0.25)
    assert read_run(run.paths).record.summary == {"first": 0.25}, "written before the run ends"
    run.summary.update(second=2, metric=Mean(3.0))
    run.log(second_by_step=1, reduce="mean")
    with pytest.raises(
        UsageError, match="`reduce` must be the same in all calls that log 'second_by_step', got max after"
    ):
        run.log(other=1, second_by_step=9, reduce="max")
    run.log(second_by_step=5, reduce="mean")
    assert dict(run.summary) == {"first": 0.25, "second": 2.0, "metric": 3.0, "second_by_step": 3.0}
    del run.summary["second"]
    for name, value in (("", 1.0), ("x\n", 1.0), ("x", "text"), ("x", torch.zeros(2)), (3, 1.0)):
        with pytest.raises(UsageError):
            run.summary[name] = value  # type: ignore[index]
    run.end()
    stored = only_run()
    assert stored.record.summary == {"first": 0.25, "metric": 3.0, "second_by_step": 3.0}
    assert stored.status == "finished", "a run that has results needs no epochs"
    with pytest.raises(UsageError, match="got a call after its end"):
        run.summary["late"] = 1.0


@pytest.mark.parametrize(
    "call",
    [
        lambda run: run.log(3),
        lambda run: run.log(a="text"),
        lambda run: run.log(a=1, reduce="median"),
        lambda run: run.log(a=1, step=-1),
        lambda run: run.log(a=1, step=1.5),
        lambda run: run.log(a=1, step=2**63),
        lambda run: run.log_image("images", torch.zeros(2, 2)),
        lambda run: run.log_image("a", torch.zeros(2, 5, 5)),
        lambda run: run.log_image("a", "text"),
        lambda run: run.log_image("a", [[1, 2], [3]]),
        lambda run: run.log_image("a", torch.zeros(3, 4, 4, device="meta")),
        lambda run: run.log_image("a", torch.zeros(3, 4, 4, dtype=torch.complex64)),
        lambda run: run.log_figure("a", 3),
        lambda run: run.log_text("a", 3),
    ],
)
def test_misuse_is_refused_and_logs_nothing(tmp_path: Path, call: Any) -> None:
    with RunManager(tmp_path, sinks=[]).run({}, nn.Linear(1, 1)) as run:
        with pytest.raises(UsageError):
            call(run)
        assert len(run.summary) == 0
        run.summary["a"] = 1.0


def test_pictures_and_texts_are_in_tensorboard(tmp_path: Path, only_run: OnlyRun) -> None:
    figure = matplotlib.figure.Figure(figsize=(1, 1), dpi=20)
    figure.subplots().plot([1, 2])
    canvas = figure.canvas
    params = {"api_key": "hidden-in-a-text"}
    with RunManager(tmp_path / "sweep", console=False).run(params, nn.Linear(1, 1)) as run:
        run.log_image("samples", torch.zeros(3, 4, 5))
        for epoch in run.epochs(1):
            epoch.track(1.0, samples=1)
        run.log_image("samples", np.zeros((4, 5, 3), np.uint8), step=9)
        run.log_figure("curve", figure)
        run.log_text("notes", f"**bold** {params['api_key']} \udcff")
    assert figure.canvas is canvas
    events = events_of(only_run())
    assert [(event.step, event.width, event.height) for event in events.Images("samples")] == [(1, 5, 4), (9, 5, 4)]
    assert [(event.width, event.height) for event in events.Images("curve")] == [(20, 20)]
    assert events.Tensors("notes/text_summary")[0].tensor_proto.string_val == [rb"**bold** *** \udcff"]


@pytest.mark.parametrize(
    ("image", "pixels"),
    [
        (torch.tensor([[0.0, 0.5], [1.0, 7.0]]), [[[0, 128], [255, 255]]]),
        (torch.tensor([[0.0, math.nan]], dtype=torch.bfloat16), [[[0, 0]]]),
        (np.array([[True, False]]), [[[255, 0]]]),
        (np.array([[300, -4]]), [[[255, 0]]]),
        (np.full((3, 1, 3), [1, 2, 3], np.uint8), [[[1]] * 3, [[2]] * 3, [[3]] * 3]),
        (torch.full((3, 1, 3), 7, dtype=torch.uint8), [[[7] * 3]] * 3),
        (np.full((3, 1, 2), 7, np.uint8), [[[7] * 2]] * 3),
        (Image.new("RGB", (2, 1), (1, 2, 3)), [[[1, 1]], [[2, 2]], [[3, 3]]]),
        (Image.new("1", (1, 1), 1), [[[255]]] * 3),
    ],
)
def test_an_image_is_bytes_of_channels_first(image: Any, pixels: Any) -> None:
    found = image_pixels("image", image)
    assert found.dtype == np.uint8 and found.tolist() == pixels
