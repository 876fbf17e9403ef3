"""The settings of `hydra/sweeper=grid`, `hydra.sweeper.*`. Few imports: each run's process loads this module."""

from dataclasses import field
from typing import Any

from runmanager.app.request.sweep_request import Kind, Part, node_class
from runmanager.records.run.heartbeat import SILENT_AFTER_SECONDS


def _set_by(who: str) -> Any:
    return field(default=None, metadata={"help": f"Set by {who}."})


GridSweeperOptions = node_class(
    Kind.JOB,
    [
        ("_target_", str, "hydra_plugins.runmanager.GridSweeper"),
        (
            "params",
            dict[str, str],
            field(
                default_factory=dict, metadata={"help": "Axes of a preset: a mapping of settings to lists of values."}
            ),
        ),
        ("sides", list[str] | None, _set_by("`runmanager duel`: the sides, each a line of overrides")),
        ("multirun", bool, field(default=True, metadata={"help": "Set by the command: whether -m was given."})),
        (
            "heartbeat_timeout",
            float,
            field(
                default=SILENT_AFTER_SECONDS,
                metadata={"help": "Seconds without a heartbeat after which a run on another host counts as gone."},
            ),
        ),
        (
            "continues",
            str | None,
            _set_by("the sweeper itself, for a cell that continues a finished run with fewer epochs"),
        ),
        ("run_name", str | None, _set_by("the sweeper itself: the name of a cell's run")),
        ("tune", Any, _set_by("`runmanager tune`: what the race of settings is asked for")),
    ],
    module=__name__,
    name="GridSweeperOptions",
    parts=[Part.SWEEPER],
)
