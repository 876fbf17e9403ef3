"""Layout of the charts in TensorBoard's Custom Scalars tab."""

import re

from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.custom_scalar.layout_pb2 import Category, Chart, Layout, MultilineChartContent

__all__ = ["CHARTS", "scalar_layout"]

CHARTS: dict[str, dict[str, tuple[str, ...]]] = {
    "Learning": {
        "loss": ("train/loss", "val/loss"),
        "accuracy": ("train/accuracy", "val/accuracy"),
    },
    "Speed": {
        "seconds an epoch, by phase": (
            *("time/data_seconds", "time/transfer_seconds", "time/compute_seconds", "time/eval_seconds"),
        ),
        "seconds an epoch": ("time/epoch_seconds",),
        "samples a second": ("throughput/samples_per_second",),
    },
}
"""The tags of each chart, by category and title."""


def scalar_layout() -> Summary:
    """Build the layout summary. Every run's file has one: TensorBoard shows equal layouts once."""
    layout = Layout(
        category=[
            Category(title=category, chart=[_chart(title, tags) for title, tags in charts.items()])
            for category, charts in CHARTS.items()
        ]
    )
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="custom_scalars"))
    tensor = TensorProto(dtype=DT_STRING, string_val=[layout.SerializeToString()], tensor_shape=TensorShapeProto())
    return Summary(value=[Summary.Value(tag="custom_scalars__config__", tensor=tensor, metadata=metadata)])


def _chart(title: str, tags: tuple[str, ...]) -> Chart:
    # The tags are patterns, matched at the start of a tag.
    exact = [f"^{re.escape(tag)}$" for tag in tags]
    return Chart(title=title, multiline=MultilineChartContent(tag=exact))
