"""The TensorBoard sink: one event file per run, in the run's folder, with histograms at a bounded cost.

| tag | kind | when |
| --- | --- | --- |
| `train/loss`, `train/accuracy` | scalar | every epoch |
| `val/loss`, `val/accuracy` | scalar | every epoch with an evaluation; step 0 is the one before training |
| `time/epoch_seconds`, `time/data_seconds`, `time/transfer_seconds`, `time/compute_seconds`, `time/eval_seconds` | scalar | every epoch, without phases that were not measured |
| `throughput/samples_per_second`, `throughput/<unit>_per_second` | scalar | every epoch; units as `tokens` that were counted in addition to samples |
| `metrics/<name>`, or `<name>` if it contains a slash and is not one of these tags | scalar | every epoch with that logged metric |
| `optim/lr` | scalar | every epoch, if the optimiser is known |
| `step/loss` | scalar | every `log_every` steps, step = optimiser step |
| `step/<name>` | scalar | every value that `run.log` got, at its step |
| `images` | image | once: at most 64 images of the first batch, at most 64 pixels per side |
| graph | graph | once: the model's operations on one sample, grouped by module, at most 5,000 |
| `weights/<parameter>`, `gradients/<parameter>` | histogram | every epoch, if enabled: at most 100 parameters and 65,536 values of each |
| `predictions`, `confusion_matrix` | image | the last evaluation, before the run's status becomes finished; and epochs 1, 2, 4, 8, … that took ten seconds or more |
| `config/text_summary` | text | once: the settings |
| names of `log_image`, `log_figure`, `log_text` | image, text | as logged |
| `metrics/<name>` | scalar | at the end: each metric of the run's summary |
| `_hparams_/session_start_info`, `_hparams_/session_end_info` | HParams | at the start, at the final end |
| `custom_scalars__config__` | layout | once, and again when a metric or unit is logged for the first time: the charts of the Custom Scalars tab |
"""  # noqa: E501  # a table row is one line

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import gcd, isfinite
from typing import Any

import numpy as np
import torch
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
from torch.utils.tensorboard import summary as protos

from runmanager.records.run.measurement import TAGS
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.storage.reader import read_epochs
from runmanager.results.load.run_summary import metric_names, unit_names
from runmanager.results.table_model.columns import rate_name
from runmanager.text import error_line, pluralize
from runmanager.tracking.epoch_metrics.evaluation import Evaluation
from runmanager.tracking.epoch_metrics.loss_buffer import LoggedLosses, sum_type
from runmanager.tracking.introspect.call_recorder import NetworkCall, example_call
from runmanager.tracking.introspect.isolation import looking
from runmanager.tracking.introspect.loader_inspection import batch_images, batch_inputs, describe_tensor
from runmanager.tracking.introspect.model_copy import is_sharded, local_part
from runmanager.tracking.options import TensorBoardOptions
from runmanager.tracking.sinks import EpochDetails, LogSink, RunStart, Sink, units_per_second
from runmanager.tracking.tensorboard.evaluation_pictures import EvaluationPictures
from runmanager.tracking.tensorboard.event_writer import EventWriter, rewritten_events
from runmanager.tracking.tensorboard.graph import draw_graph
from runmanager.tracking.tensorboard.hparams import (
    CHARTS,
    Charts,
    charts_of,
    metric_tag,
    scalar_layout,
    session_end,
    session_start,
)

_MAX_IMAGES = 64
_NO_CALL = (
    "no graph: the model's inputs are not known, as no call of it could be recorded and no first batch shows them"
)


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


class TensorBoardSink:
    """Writes the tags above and flushes every epoch. A model that cannot be drawn causes a note, not an error."""

    def __init__(self, options: TensorBoardOptions | None = None) -> None:
        self._options = options or TensorBoardOptions()
        self.needs_scores = self._options.predictions or self._options.confusion_matrix
        self._writer: EventWriter | None = None
        self._pictures = EvaluationPictures(self._options)
        self._noted: set[str] = set()
        self._last_step = 0
        self._undrawn: tuple[str, torch.device] | None = None  # why the model has no graph yet, and where it is
        self._metrics: dict[str, None] = {}
        self._units: dict[str, None] = {}
        self._charts: Charts = CHARTS

    def begin(self, start: RunStart) -> Sequence[str]:
        existing = start.paths.events
        self._writer = EventWriter(start.paths.root, existing)
        if existing is not None:
            self._note_names(read_epochs(start.paths))
            return ()  # resumed: the file has its start already
        # Without an experiment TensorBoard shows the union of all runs' settings; `logdir.py` writes one for all.
        hparams, text = _settings_summaries(start.record.settings)
        self._writer.summary(hparams)
        self._writer.summary(scalar_layout())
        self._writer.summary(text, 0)
        notes: list[str] = []
        images = call = None
        if self._options.images and start.first_batch is not None:
            with looking(notes):
                images = _image_grid(start.first_batch, notes)
        if images is not None:
            self._writer.summary(images, 0)
        if self._options.graph and start.network is not None:
            if start.first_batch is not None:
                with looking(notes):
                    call = example_call(start.network, start.first_batch)
            notes += self._add_graph(start.network, call, start.device)
        self._writer.flush()
        return notes

    def epoch(self, record: EpochRecord, details: EpochDetails) -> Sequence[str]:
        assert self._writer is not None
        self._writer.scalars(epoch_scalars(record, details.learning_rate), record.epoch)
        if self._note_names([record]):
            self._writer.summary(scalar_layout(self._charts), record.epoch)
        self._writer.series("step/loss", details.step_losses)
        self._add_points(details.points)
        notes: list[str] = []
        if self._undrawn is not None and details.network is not None:
            notes += self._draw_again(details.network, details.first_call, *self._undrawn)
        if self._options.histograms and details.network is not None:
            notes += self._add_histograms(record.epoch, details.network)
        self._last_step = record.epoch
        pictures, failures = self._pictures.epoch(record, details.evaluation)
        self._add_pictures(pictures, record.epoch)
        self._writer.flush()
        return [*notes, *failures]

    def finish(self, record: EpochRecord, evaluation: Evaluation) -> Sequence[str]:
        assert self._writer is not None
        pictures, notes = self._pictures.last(record, evaluation)
        self._add_pictures(pictures, record.epoch)
        self._writer.flush()  # before the status becomes finished: a finished run is not resumed to draw them
        return notes

    def points(self, points: Mapping[str, LoggedLosses]) -> None:
        assert self._writer is not None
        self._add_points(points)
        self._writer.flush()

    def image(self, name: str, pixels: np.ndarray[Any, Any], step: int) -> None:
        assert self._writer is not None
        self._writer.summary(protos.image(name, pixels, dataformats="CHW"), step)

    def text(self, name: str, text: str, step: int) -> None:
        assert self._writer is not None
        self._writer.summary(protos.text(name, text), step)

    def _add_points(self, points: Mapping[str, LoggedLosses]) -> None:
        assert self._writer is not None
        for name, logged in points.items():
            self._writer.series(f"step/{name}", logged)

    def end(self, record: RunRecord) -> None:
        assert self._writer is not None
        known = {_result_tag(name): value for name, value in (record.summary or {}).items() if value is not None}
        if known:
            self._writer.scalars(known, self._last_step)
        self._writer.summary(session_end(succeeded=record.status.is_success))
        self._writer.close()
        self._writer = None

    def _note_names(self, records: Sequence[EpochRecord]) -> bool:
        """Keep the names of what these epochs logged; return whether that changed the charts."""
        known = len(self._metrics) + len(self._units)
        self._metrics |= dict.fromkeys(metric_names(records))
        self._units |= dict.fromkeys(unit_names(records))
        if len(self._metrics) + len(self._units) == known:
            return False
        before, self._charts = self._charts, charts_of(self._metrics, self._units)
        return self._charts != before

    def _add_graph(self, network: torch.nn.Module, call: NetworkCall | None, device: torch.device) -> Sequence[str]:
        """Draw a call of the network; if that fails, a call that was seen is drawn after the first epoch."""
        if call is None:
            self._undrawn = self._undrawn or (_NO_CALL, device)
            return ()
        assert self._writer is not None
        try:
            drawing = draw_graph(network, call, device=device)
        except Exception as error:  # a model may raise anything; the run must continue
            self._undrawn = f"no graph: the model could not be followed ({error_line(error)})", device
            return ()
        self._undrawn = None
        self._writer.graph(drawing.graph)
        return drawing.notes

    def _draw_again(
        self, network: torch.nn.Module, call: NetworkCall | None, reason: str, device: torch.device
    ) -> Sequence[str]:
        notes = () if call is None else self._add_graph(network, call, device)
        failed, self._undrawn = self._undrawn, None
        if failed is None:
            return notes
        return [failed[0] if reason == _NO_CALL else reason]  # why a guessed call failed tells more than a seen one

    def _add_pictures(self, pictures: Summary, epoch: int) -> None:
        if pictures.value:
            assert self._writer is not None
            self._writer.summary(pictures, epoch)

    def _add_histograms(self, epoch: int, network: torch.nn.Module) -> Sequence[str]:
        assert self._writer is not None
        found = compute_histograms(network)
        values = [Summary.Value(tag=tag, histo=_as_proto(each)) for tag, each in found.items() if each is not None]
        self._writer.summary(Summary(value=values), epoch)
        notes = {line: line for line in describe_omissions(network)}
        notes |= {
            tag: f"no histogram of {tag} in epoch {epoch}: it holds NaN or infinity"
            for tag, each in found.items()
            if each is None
        }
        new = [note for key, note in notes.items() if key not in self._noted]  # once, as it applies to every epoch
        self._noted.update(notes)
        return new


def _image_grid(batch: Any, notes: list[str]) -> Summary | None:
    """Build the grid of a batch's images; None, with a note on images that cannot be shown, if it has none."""
    if (images := batch_images(batch, _MAX_IMAGES)) is not None:
        grid: Summary = protos.image("images", images, dataformats="NCHW")
        return grid
    inputs = batch_inputs(batch)
    if inputs is not None and inputs.ndim == 4:  # not of another kind, as tokens
        what = describe_tensor(inputs)
        notes.append(f"no image grid: images must be dense, with pixels and 1 or 3 channels, got {what}")
    return None


def _result_tag(name: str) -> str:
    """Return the tag of a metric of the whole run: that of its column in the HParams tab, if it has one."""
    return TAGS.get(name) or metric_tag(name)


def _as_proto(histogram: Histogram) -> HistogramProto:
    return HistogramProto(
        min=histogram.low,
        max=histogram.high,
        num=sum(histogram.counts),
        sum=histogram.total,
        sum_squares=histogram.squares,
        bucket_limit=histogram.limits,
        bucket=histogram.counts,
    )


def epoch_scalars(record: EpochRecord, learning_rate: float | None) -> dict[str, float]:
    """Return one epoch's scalars by tag, without what was not measured."""
    values: Mapping[str, float | None] = {
        **{tag: getattr(record, name) for name, tag in TAGS.items()},
        **{f"throughput/{rate_name(unit)}": rate for unit, rate in units_per_second(record).items()},
        "optim/lr": learning_rate,
        **{metric_tag(name): value for name, value in (record.metrics or {}).items()},
    }
    return {tag: value for tag, value in values.items() if value is not None}


def default_sinks(options: TensorBoardOptions | None = None) -> list[Sink]:
    """Return what a run writes to in its folder: run.log and, as the options say, an event file."""
    options = options or TensorBoardOptions()
    return [LogSink(), *([TensorBoardSink(options)] if options.enabled else [])]


def with_settings(data: bytes, settings: Mapping[str, Any]) -> bytes:
    """Return `data`, the first part of a run's event file, with other settings, and without an incomplete record."""
    replaced = {summary.value[0].tag: summary for summary in _settings_summaries(settings)}
    return rewritten_events(data, replaced)


def _settings_summaries(settings: Mapping[str, Any]) -> tuple[Summary, Summary]:
    """Build the summaries of a run's settings: for the HParams tab, and as text."""
    return session_start(settings), protos.text("config", _as_markdown(settings))


def _as_markdown(settings: Mapping[str, Any]) -> str:
    from runmanager.results.tables.text_formats import escape_markdown  # late: tables are for the end of a run

    cells = ([escape_markdown(str(each), in_table=True) for each in setting] for setting in settings.items())
    rows = "\n".join(f"| {name} | {value} |" for name, value in cells)
    return f"| setting | value |\n| --- | --- |\n{rows}"
