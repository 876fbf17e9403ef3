"""Hydra's own suites for launchers, run as a plugin's authors run them, on the installed plugin."""

from typing import Any

import pytest
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.test_utils.launcher_common_tests import IntegrationTestSuite, LauncherTestSuite

# The main module of the tests would be imported for each job, and warns of Hydra's old defaults.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def test_plugin_is_discovered() -> None:
    found = Plugins.instance().discover(Launcher)
    names = sorted(each.__name__ for each in found if each.__module__ == "hydra_plugins.runmanager")
    assert names == ["LocalLauncher", "RayLauncher", "SlurmLauncher"]


@pytest.mark.parametrize(("launcher_name", "overrides"), [("runmanager", [])])
class TestLauncherSuite(LauncherTestSuite):
    """What every launcher must do."""

    @pytest.mark.xfail(strict=True, reason="a resolver that only the driver has registered is not in a job's process")
    def test_sweep_with_custom_resolver(
        self, hydra_sweep_runner: Any, launcher_name: str, overrides: list[str], tmpdir: Any
    ) -> None:
        super().test_sweep_with_custom_resolver(hydra_sweep_runner, launcher_name, overrides, tmpdir)


@pytest.mark.parametrize(
    ("task_launcher_cfg", "extra_flags"),
    [({}, ["-m", "hydra/launcher=runmanager"])],
)
class TestIntegrationSuite(IntegrationTestSuite):
    """The same in an application of its own."""
