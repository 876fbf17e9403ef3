"""Every fault of a command that Hydra could not compose; Hydra itself stops at the first one."""

from collections.abc import Sequence

from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from runmanager.app.compose.cell_loader import CellLoader
from runmanager.app.compose.compose_cells import prepare_cells
from runmanager.app.compose.override_grid import parse_overrides
from runmanager.app.compose.schema import conf_folder
from runmanager.app.request.command import HYDRA_OPTIONS
from runmanager.errors import ConfigurationError
from runmanager.launching.hydra_internals import version_base


def command_faults(words: Sequence[str]) -> tuple[str, ...]:
    """Return every fault of a command's overrides; empty if the cause is elsewhere."""
    is_value = [before in HYDRA_OPTIONS for before in ("", *words)]  # as `job` in `--cfg job`
    overrides = [word for word, skip in zip(words, is_value, strict=False) if not (skip or word.startswith("-"))]
    if any(word.startswith(("--config", "-cn", "-cp", "-cd")) for word in words):
        return ()  # another configuration than ours: Hydra's message is used
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(conf_folder()), **version_base()):
            return _faults(overrides)
    except ConfigurationError as error:
        return error.faults
    except (HydraException, OmegaConfBaseException):
        return ()


def _faults(overrides: Sequence[str]) -> tuple[str, ...]:
    loader = CellLoader(GlobalHydra.instance().config_loader())
    bare = loader.load_configuration("config", [], RunMode.RUN)
    faults: dict[str, None] = {}
    parsed = parse_overrides(loader, overrides)
    hydras = [each.input_line or "" for each in parsed if each.is_hydra_override()]
    faults.update(dict.fromkeys(loader.diagnose(bare, hydras)[0]))
    tasks = [each.input_line or "" for each in parsed if not each.is_hydra_override()]
    master: DictConfig = bare
    try:
        prepare_cells(loader, master, tasks)
    except ConfigurationError as error:
        faults.update(dict.fromkeys(error.faults))
    return tuple(faults)
