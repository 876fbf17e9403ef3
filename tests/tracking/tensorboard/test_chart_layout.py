"""The charts of the Custom Scalars tab."""

import re

from tensorboard.plugins.custom_scalar.layout_pb2 import Layout

import runmanager.tracking.tensorboard.sink as module
from runmanager.tracking.tensorboard.chart_layout import scalar_layout


def test_each_chart_matches_exactly_the_tags_of_a_run() -> None:
    (value,) = scalar_layout().value
    assert (value.tag, value.metadata.plugin_data.plugin_name) == ("custom_scalars__config__", "custom_scalars")
    layout = Layout.FromString(value.tensor.string_val[0])
    written = set(re.findall(r"`(\w+/\w+)`", module.__doc__ or ""))
    charts = {chart.title: chart.multiline.tag for category in layout.category for chart in category.chart}
    assert {"loss", "accuracy", "samples a second"} <= set(charts)
    for title, patterns in charts.items():
        shown = {tag for tag in written for pattern in patterns if re.match(pattern, tag)}
        assert len(shown) == len(patterns), title
        assert not any(re.match(pattern, f"{tag}/more") for tag in written for pattern in patterns)
