"""Hydra's plugin of this package: cheap to import, with the options of what it stands for."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import hydra_plugins.runmanager as plugin

from runmanager.app.request.grid_sweeper_options import GridSweeperOptions

from .conftest import Application

LIGHT = """
import sys
from hydra.core.plugins import Plugins
before = set(sys.modules)
import hydra_plugins.runmanager
late = set(sys.modules) - before
assert not any(name.split(".")[0] in ("torch", "pandas", "msgspec", "rich", "typer") for name in late), late
options = ("launching.options", "launching.slurm.options", "launching.ray.options")
ours = ("app.request.sweep_request", *options, "validation")
loaded = {name for name in late if name.split(".")[0] == "runmanager" and not hasattr(sys.modules[name], "__path__")}
assert loaded <= {f"runmanager.{name}" for name in ours}, late
"""


def test_importing_it_loads_nothing_of_ours_but_the_options_of_a_sweep() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


WITHOUT_TORCH = """
import sys
import runmanager.app.programs.application.application_sweeper
import runmanager.app.programs.cell_imports
import runmanager.app.programs.script.script_cell
import runmanager.app.programs.script.script_program
assert "torch" not in sys.modules
"""


def test_a_sweep_of_a_program_without_torch_never_imports_it() -> None:
    """Its import takes seconds, and a cell's process 200 MiB."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_driver_is_imported_after_the_server_of_the_cells_has_been_started() -> None:
    """The first cell waits for the server, which imports at the same time."""
    code = "import sys, runmanager.app.programs.application.application_sweeper; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "runmanager.app.driver" not in done.stdout.split()


def test_hydra_finds_it_in_the_namespace_package() -> None:
    folder = Path(plugin.__file__).parent
    assert not (folder.parent / "__init__.py").exists()


def test_heartbeat_timeout_is_that_of_the_grid_sweeper() -> None:
    defaults = [
        {each.name: each.default for each in dataclasses.fields(options)}
        for options in (plugin.SweeperConfig, GridSweeperOptions)
    ]
    assert defaults[0]["heartbeat_timeout"] == defaults[1]["heartbeat_timeout"]


def test_launcher_settings_compose_without_naming_the_launcher(application: Application) -> None:
    def shown(*words: str) -> str:
        command = [sys.executable, "train.py", "hydra/sweeper=runmanager", *words, "--cfg=hydra", "-p=hydra.launcher"]
        done = subprocess.run(command, cwd=application.folder, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "workers: 2" in shown("hydra.launcher.workers=2")
    assert "basic_launcher" in shown("hydra/launcher=basic")
    assert "partition: fast" in shown("hydra/launcher=runmanager_slurm", "hydra.launcher.partition=fast")
