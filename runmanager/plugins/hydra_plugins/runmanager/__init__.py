"""Hydra's plugins of runmanager, in every Hydra application: one sweeper and three launchers.

Every application imports this at its start, so it needs of ours the options of a sweep and of the launchers alone, and
imports what does the work when Hydra creates it. There is no `from __future__ import annotations`: Hydra 1.3
executes this module before it is in `sys.modules`, where dataclasses look up such annotations.
"""

import os
import sys
from dataclasses import field
from importlib import import_module
from pkgutil import resolve_name
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from runmanager.app.request.sweep_request import Kind, Part, node_class
from runmanager.launching.options import LocalOptions
from runmanager.launching.ray.options import RayOptions
from runmanager.launching.slurm.options import SlurmOptions

_MODULE = "hydra_plugins.runmanager"
_DEFAULTS = (
    "_self_",
    {"/hydra/runmanager_cell@_global_": "folder"},
    {"override /hydra/launcher@_global_.hydra.launcher": "runmanager"},
)
_IS_1_3 = hydra.__version__.startswith("1.3.")

PLUGINS = ("LocalLauncher", "SlurmLauncher", "RayLauncher", "ApplicationSweeper")
"""The classes of this module: `register_plugin` registers no second class of such a name."""


class _StandIn:
    """Stands for the class that `real` names, of which its instances are: its own methods are never called."""

    real = ""

    def __new__(cls, **settings: Any) -> Any:
        return resolve_name(cls.real)(**settings)

    def setup(self, **_: Any) -> None: ...

    def launch(self, job_overrides: Any, initial_job_idx: int) -> Any: ...

    def sweep(self, arguments: list[str]) -> Any: ...


class LocalLauncher(_StandIn, Launcher):
    """`hydra/launcher=runmanager`: each job in its own process on this machine."""

    real = "runmanager.launching.hydra_launcher:LocalLauncher"


class SlurmLauncher(_StandIn, Launcher):
    """`hydra/launcher=runmanager_slurm`: each job as a task of a Slurm array."""

    real = "runmanager.launching.slurm.launcher:SlurmLauncher"


class RayLauncher(_StandIn, Launcher):
    """`hydra/launcher=runmanager_ray`: each job as a task of Ray."""

    real = "runmanager.launching.ray.launcher:RayLauncher"


class ApplicationSweeper(_StandIn, Sweeper):
    """`hydra/sweeper=runmanager`: a grid of the application's cells, recorded, resumed and compared."""

    real = "runmanager.app.programs.application.application_sweeper:ApplicationSweeper"

    def __new__(cls, **settings: Any) -> Any:
        RuntimeSettings.end()
        return super().__new__(cls, **settings)


class RuntimeSettings(Callback):
    """Gives `${hydra:…}` in the sweeper's settings its value: Hydra 1.3 resolves them before it provides its settings.

    Hydra 1.4 provides them by itself, and warns of every callback that an application has not permitted.
    """

    _provided: Any = None

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Provide Hydra's settings until the sweeper is created; called by Hydra."""
        holder: Any = HydraConfig.instance()
        if holder.cfg is None:
            settings = OmegaConf.masked_copy(config, "hydra")
            settings.hydra._set_parent(config)
            RuntimeSettings._provided = holder.cfg = settings
        _require_values(config)

    @classmethod
    def end(cls) -> None:
        """Take back what `on_multirun_start` provided."""
        holder: Any = HydraConfig.instance()
        if cls._provided is not None and holder.cfg is cls._provided:
            holder.cfg = None
        cls._provided = None


def _require_values(config: DictConfig) -> None:
    """End the command with one line where a setting of the sweep has no value: Hydra would end it with a traceback."""
    for part in (config.hydra.sweeper, config.hydra.launcher):
        try:
            OmegaConf.to_container(part, resolve=True, throw_on_missing=True)
        except OmegaConfBaseException as error:
            from runmanager.app.display.error_line import print_error
            from runmanager.text import message_line
            from runmanager.validation import fault

            rule = "have one value for the whole sweep"
            print_error(fault(str(error.full_key), rule, f"none: {message_line(error).removesuffix('.')}"))
            raise SystemExit(2) from None


def _said(text: str, default: Any = None) -> Any:
    return field(default=default, metadata={"help": text})


SweeperConfig = node_class(
    Kind.APPLICATION,
    [
        ("defaults", list[Any], field(default_factory=lambda: list(_DEFAULTS))),
        ("_target_", str, f"{_MODULE}.ApplicationSweeper"),
        (
            "params",
            dict[str, str],
            field(
                default_factory=dict, metadata={"help": "Axes of a preset: a mapping of settings to lists of values."}
            ),
        ),
        (
            "heartbeat_timeout",
            float,
            _said("Seconds without a heartbeat after which a run on another host counts as gone.", 60.0),
        ),
        ("tune", Any, _said("Set by `runmanager tune`: what the race of settings is asked for.")),
    ],
    module=_MODULE,
    name="SweeperConfig",
    parts=[Part.SWEEP, Part.SWEEPER],
)
"""Options of `hydra/sweeper=runmanager`: those of `runmanager sweep`."""


def _accept_unquoted_values() -> None:
    """Let Hydra parse `hydra.sweeper.exclude=lr>0.1`, whose quotes the shell has taken."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    from runmanager.app.request.command import quote_raw

    parse: Any = OverridesParser.parse_rule

    def parse_quoted(self: Any, s: str, rule_name: str) -> Any:
        return parse(self, quote_raw(s), rule_name)

    OverridesParser.parse_rule = parse_quoted  # type: ignore[method-assign]


_RAW_SETTINGS = ("hydra.sweeper.exclude=", "hydra.sweeper.notify=", "hydra.sweeper.resume_with=")
if any(word.startswith(_RAW_SETTINGS) for word in sys.argv):
    _accept_unquoted_values()

if "RUNMANAGER_CELL" in os.environ:  # the application may be the cell's, started again
    import_module("runmanager.app.programs.application.started_again").join_cell()

# Before a job has its folder, `${hydra.runtime.output_dir}` stands for itself in the sweeper's settings.
_CELL = {
    "hydra": {
        "runtime": {"output_dir": "{run_dir}"},
        **({"callbacks": {"runmanager": {"_target_": f"{_MODULE}.RuntimeSettings"}}} if _IS_1_3 else {}),
    }
}

_store = ConfigStore.instance()
_launchers = {
    "runmanager": LocalOptions(preload=None),
    "runmanager_slurm": SlurmOptions(),
    "runmanager_ray": RayOptions(),
}
for _name, _options in _launchers.items():
    _node = OmegaConf.structured(_options)
    OmegaConf.set_readonly(_node, None)  # Hydra makes a frozen dataclass read-only, which overrides must not be
    _store.store(group="hydra/launcher", name=_name, node=_node, provider="runmanager")
_store.store(group="hydra/sweeper", name="runmanager", node=SweeperConfig, provider="runmanager")
_store.store(group="hydra/runmanager_cell", name="folder", node=_CELL, provider="runmanager")
