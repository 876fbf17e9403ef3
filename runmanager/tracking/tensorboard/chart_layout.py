"""Layout of the charts in TensorBoard's Custom Scalars tab."""

import re
from collections.abc import Iterable, Mapping

from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.custom_scalar.layout_pb2 import Category, Chart, Layout, MultilineChartContent

from runmanager.records.run.measurement import TAGS
from runmanager.records.run.run_record import PHASES
from runmanager.results.table_model.logged_columns import rate_name
from runmanager.tracking.tensorboard.hparams import metric_tag

__all__ = ["CHARTS", "MAX_CHARTS", "Charts", "charts_of", "scalar_layout"]

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
