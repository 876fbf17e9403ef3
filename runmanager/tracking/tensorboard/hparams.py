"""TensorBoard's HParams and Custom Scalars tabs: settings and end of each run, the columns of all runs, the charts."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.custom_scalar.layout_pb2 import Category, Chart, Layout, MultilineChartContent
from tensorboard.plugins.hparams.api_pb2 import (
    DATA_TYPE_BOOL,
    DATA_TYPE_FLOAT64,
    DATA_TYPE_STRING,
    DATASET_TRAINING,
    DATASET_UNKNOWN,
    DATASET_VALIDATION,
    STATUS_FAILURE,
    STATUS_SUCCESS,
    Experiment,
    HParamInfo,
    MetricInfo,
    MetricName,
)
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo, SessionStartInfo

from runmanager.records.run.measurement import TAGS
from runmanager.records.run.run_record import PHASES, EpochRecord
from runmanager.records.settings.values import differing_settings
from runmanager.records.storage.reader import StoredRun
from runmanager.results.table_model.columns import rate_name


@dataclass(frozen=True)
class Metric:
    """A column of the HParams tab: the last value of the scalar `tag`.

    It is in `field` of the epoch records, None for a logged metric.
    """

    tag: str
    field: str | None
    name: str
    dataset: Any = DATASET_UNKNOWN


def _column(name: str, shown: str = "") -> Metric:
    tag = TAGS[name]
    dataset = DATASET_VALIDATION if tag.startswith("val/") else DATASET_TRAINING
    return Metric(tag, name, shown or tag.replace("/", " "), dataset)


METRICS = (
    *(_column("val_accuracy"), _column("val_loss"), _column("loss"), _column("samples_per_second", "samples/s")),
    *(_column("epoch_seconds", "epoch seconds"), _column("accuracy")),
)
"""In the order of the columns: the tab shows the first five by default."""

_FIELDS = {metric.field for metric in METRICS}

_OWN_TAGS = {*TAGS.values(), "optim/lr", "step/loss", "config/text_summary"}
_OWN_GROUPS = ("step", "metrics", "throughput", "weights", "gradients", "_hparams_")  # whose tags have the user's names


def session_start(settings: Mapping[str, Any]) -> Summary:
    """Build the summary of a run's settings, without None, which would turn a column of numbers into text."""
    start = SessionStartInfo()
    for name, value in settings.items():
        match value:
            case None:
                pass
            case bool():
                start.hparams[name].bool_value = value
            case int() | float():
                start.hparams[name].number_value = value
            case _:
                start.hparams[name].string_value = str(value)
    return _summary("session_start_info", HParamsPluginData(session_start_info=start, version=0))


def session_end(*, succeeded: bool) -> Summary:
    """Build the summary of a run's end. Write it once, at the final end: TensorBoard uses the first one."""
    end = SessionEndInfo(status=STATUS_SUCCESS if succeeded else STATUS_FAILURE)
    return _summary("session_end_info", HParamsPluginData(session_end_info=end, version=0))


def metric_tag(name: str) -> str:
    """Return the tag of a logged metric: its name if it has a slash and is not our own tag, else below `metrics/`.

    No two names have the same tag: `metrics/f1` is that of `f1`, so a metric of that name has `metrics/metrics/f1`.
    """
    group, slash, _ = name.partition("/")
    is_free = bool(slash) and name not in _OWN_TAGS and group not in _OWN_GROUPS
    return name if is_free else f"metrics/{name}"


def metric_columns(runs: Iterable[StoredRun], *, read_all: bool = False) -> list[Metric]:
    """List the metrics that ended runs have, and after them the logged ones in order of first appearance.

    Without any, all of `METRICS` are listed. Reads as few runs as possible: up to one that adds nothing to all of
    `METRICS`, unless `read_all` is set, as for runs that log different metrics.
    """
    found: set[Metric] = set()
    logged: dict[str, None] = {}
    for run in runs:
        num_logged = len(logged)
        if run.record.status.is_ended:
            found |= {each for each in METRICS if any(_value(epoch, each) is not None for epoch in run.epochs)}
            for epoch in run.epochs:
                logged |= dict.fromkeys(epoch.metrics or ())
            logged |= dict.fromkeys(name for name in run.record.summary or () if name not in _FIELDS)
        if len(found) == len(METRICS) and len(logged) == num_logged and not read_all:
            break
    listed = [each for each in METRICS if each in found] or ([] if logged else list(METRICS))
    return [*listed, *(Metric(metric_tag(name), None, name) for name in logged)]


def _value(epoch: EpochRecord, metric: Metric) -> float | None:
    return None if metric.field is None else getattr(epoch, metric.field)


def experiment_summary(cells: Sequence[Mapping[str, Any]], metrics: Iterable[Metric] = METRICS) -> Summary:
    """Build the summary of the columns: the settings in which `cells` differ, all if none do, and `metrics`.

    TensorBoard applies the first experiment that it finds to all runs and hides other columns. Write one only, with
    all cells.
    """
    varying = differing_settings(cells)
    names = varying or list(dict.fromkeys(name for cell in cells for name in cell))
    infos = [_hparam(name, [cell.get(name) for cell in cells], differs=name in varying) for name in names]
    declared = Experiment(
        hparam_infos=[info for info in infos if info is not None],
        metric_infos=[
            MetricInfo(name=MetricName(tag=each.tag), display_name=each.name, dataset_type=each.dataset)
            for each in metrics
        ],
    )
    return _summary("experiment", HParamsPluginData(experiment=declared, version=0))


def mixed_type_settings(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the settings with values of several types: TensorBoard can sort by them only if all values are text."""
    names = dict.fromkeys(name for cell in cells for name in cell)
    return [name for name in names if len(_types([cell.get(name) for cell in cells])) > 1]


def _hparam(name: str, values: Sequence[Any], *, differs: bool) -> HParamInfo | None:
    """Build the column of a setting; None if no cell sets it."""
    info = HParamInfo(name=name, differs=differs)
    known = [value for value in values if value is not None]
    match _types(values):
        case []:
            return None
        case [only] if only == DATA_TYPE_FLOAT64:
            info.type = only
            info.domain_interval.min_value, info.domain_interval.max_value = min(known), max(known)
        case [only] if only == DATA_TYPE_BOOL:
            info.type = only
            info.domain_discrete.extend([False, True])
        case _:
            info.type = DATA_TYPE_STRING
            info.domain_discrete.extend(dict.fromkeys(str(value) for value in known))
    return info


def _types(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(_type(value) for value in values if value is not None))


def _type(value: Any) -> Any:
    if isinstance(value, bool):
        return DATA_TYPE_BOOL
    return DATA_TYPE_FLOAT64 if isinstance(value, int | float) else DATA_TYPE_STRING


def _summary(part: str, data: HParamsPluginData) -> Summary:
    plugin = SummaryMetadata.PluginData(plugin_name="hparams", content=data.SerializeToString())
    return Summary(value=[Summary.Value(tag=f"_hparams_/{part}", metadata=SummaryMetadata(plugin_data=plugin))])


Charts = Mapping[str, Mapping[str, tuple[str, ...]]]

CHARTS: Charts = {
    "Learning": {
        "loss": (TAGS["loss"], TAGS["val_loss"]),
        "accuracy": (TAGS["accuracy"], TAGS["val_accuracy"]),
    },
    "Speed": {
        "seconds an epoch, by phase": tuple(TAGS[f"{phase}_seconds"] for phase in PHASES[:-1]),
        "seconds an epoch": (TAGS["epoch_seconds"],),
        "samples a second": (TAGS["samples_per_second"],),
    },
}
"""The tags of each chart, by category and title."""

MAX_CHARTS = 100
"""Logged metrics beyond these have no chart: a program may make up names without end."""

_PARTS_OF_DATA = ("train", "val", "eval", "test")
_PREFIX = re.compile(rf"^({'|'.join(_PARTS_OF_DATA)})[_/](?=.)")


def charts_of(metrics: Iterable[str], units: Iterable[str] = ()) -> Charts:
    """Return the charts, with one for each logged metric and one for the rate of each unit.

    `f1`, `train_f1`, `val_f1` and `val/f1` have one chart, `f1`. It lists all of these tags whichever of them a run
    has, so that the charts of different runs are equal, and TensorBoard shows each of them once.
    """
    names = list(dict.fromkeys(_PREFIX.sub("", name, count=1) for name in metrics))[:MAX_CHARTS]
    learning = {f"{name} (logged)" if name in CHARTS["Learning"] else name: _tags(name) for name in names}
    rates = {f"{unit} a second": (f"throughput/{rate_name(unit)}",) for unit in units}
    return {"Learning": {**CHARTS["Learning"], **learning}, "Speed": {**CHARTS["Speed"], **rates}}


def _tags(name: str) -> tuple[str, ...]:
    prefixes = ["", *(f"{part}{sign}" for part in _PARTS_OF_DATA for sign in "_/")]
    return tuple(metric_tag(f"{prefix}{name}") for prefix in prefixes)


def scalar_layout(charts: Charts = CHARTS) -> Summary:
    """Build the layout summary. Every run's file has one, of which the last counts.

    TensorBoard merges the layouts of all runs, and shows equal charts once.
    """
    layout = Layout(
        category=[
            Category(title=category, chart=[_chart(title, tags) for title, tags in of_category.items()])
            for category, of_category in charts.items()
        ]
    )
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="custom_scalars"))
    tensor = TensorProto(dtype=DT_STRING, string_val=[layout.SerializeToString()], tensor_shape=TensorShapeProto())
    return Summary(value=[Summary.Value(tag="custom_scalars__config__", tensor=tensor, metadata=metadata)])


def _chart(title: str, tags: tuple[str, ...]) -> Chart:
    # The tags are patterns, matched at the start of a tag.
    exact = [f"^{re.escape(tag)}$" for tag in tags]
    return Chart(title=title, multiline=MultilineChartContent(tag=exact))
