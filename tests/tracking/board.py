"""TensorBoard on a folder, queried like its tabs query it, and runs for it to show."""

import warnings
from pathlib import Path
from typing import Any

import torch
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client

from runmanager import RunManager
from runmanager.records.files.paths import SweepPaths

CELLS: tuple[dict[str, Any], ...] = (
    {"lr": 0.1, "batch_size": 1000, "model": {"width": None}, "chunk": "auto", "amp": True, "betas": [0.9, 0.999]},
    {"lr": 0.02, "batch_size": 200, "model": {"width": 64}, "chunk": 100, "amp": False, "betas": [0.8, 0.9]},
    {"lr": 0.003, "batch_size": 10000, "model": {"width": 8}, "chunk": 20, "amp": False, "betas": [0.8, 0.9]},
)
LOADER = [torch.zeros(1, 1)]

_STATES = ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"]


def begin(sweep: SweepPaths, *cells: dict[str, Any], validates: bool = True) -> None:
    """Record a run of one epoch for each cell."""
    manager = RunManager(sweep.root, console=False)
    for at, cell in enumerate(cells):
        with manager.run({**cell, "device": "cpu"}, torch.nn.Linear(1, 1), LOADER) as run:
            for epoch in run.epochs(1):
                for _ in epoch.batches(LOADER):
                    epoch.track(torch.tensor(float(at)), samples=1)
                if validates:
                    epoch.track_eval(torch.tensor(10.0 * at), samples=1)


class Board:
    """TensorBoard on a folder, with its loader and the HParams tab's responses, without a server."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._runs = EventMultiplexer()
        provider = MultiplexerDataProvider(self._runs, self._folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # TensorBoard's copy of a library warns when it is imported
            from tensorboard.plugins.custom_scalar.custom_scalars_plugin import CustomScalarsPlugin
            from tensorboard.plugins.hparams.hparams_plugin import HParamsPlugin
            from tensorboard.plugins.scalar.scalars_plugin import ScalarsPlugin
        plugins: dict[str, Any] = {}
        context = TBContext(logdir=self._folder, data_provider=provider, plugin_name_to_instance=plugins)
        plugins["scalars"] = ScalarsPlugin(context)
        self._routes = HParamsPlugin(context).get_plugin_apps()
        self._custom_scalars = CustomScalarsPlugin(context).get_plugin_apps()

    def load(self) -> list[str]:
        """Return the names of the runs shown."""
        return sorted(self._runs.AddRunsFromDirectory(self._folder).Reload().Runs())

    def hparams(self) -> dict[str, Any]:
        """Return the columns of settings, by name."""
        return {info["name"]: info for info in self._query("/experiment")["hparamInfos"]}

    def metrics(self) -> list[str]:
        """Return the tags of the metric columns, in order."""
        return [info["name"]["tag"] for info in self._query("/experiment")["metricInfos"]]

    def rows(self) -> list[str]:
        """Return the names of the runs that have a row."""
        found = self._query("/session_groups", colParams=[], allowedStatuses=_STATES, startIndex=0, sliceSize=100)
        return sorted(session["name"] for group in found["sessionGroups"] for session in group["sessions"])

    def sorted_by(self, hparam: str) -> list[Any]:
        """Return the values of a setting in the order of the rows, sorted by it."""
        column = {"hparam": hparam, "order": "ORDER_ASC", "includeInResult": True}
        found = self._query("/session_groups", colParams=[column], allowedStatuses=_STATES, startIndex=0, sliceSize=100)
        return [group["hparams"].get(hparam) for group in found["sessionGroups"]]

    def charts(self) -> dict[str, list[str]]:
        """Return the patterns of each chart of Custom Scalars, by title."""
        layout = Client(self._custom_scalars["/layout"]).get("/layout").json
        assert layout is not None
        charts = [chart for category in layout["category"] for chart in category["chart"]]
        assert len({chart["title"] for chart in charts}) == len(charts)
        return {chart["title"]: chart["multiline"]["tag"] for chart in charts}

    def drawn(self, run: str, patterns: list[str]) -> dict[str, list[float]]:
        """Return the values of each tag of a run that a chart with these patterns draws."""
        found: dict[str, list[float]] = {}
        for pattern in patterns:
            query = {"tag": pattern, "run": run}
            answer = Client(self._custom_scalars["/scalars"]).get("/scalars", query_string=query).json
            assert answer is not None and answer["regex_valid"]
            found |= {tag: [value for *_, value in series] for tag, series in answer["tag_to_events"].items()}
        return found

    def _query(self, route: str, **parameters: Any) -> Any:
        body = {"experimentName": "", "includeMetrics": True, **parameters}
        response = Client(self._routes[route]).post(route, json=body)
        assert response.status_code == 200, response.text
        return response.json
