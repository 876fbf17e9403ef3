"""The settings of the Slurm launcher: every fault at once."""

import pytest

from runmanager.errors import ConfigurationError
from runmanager.launching.slurm.options import SlurmOptions


def test_what_is_given_is_kept() -> None:
    options = SlurmOptions.checked(partition="gpu", time=5, additional_parameters={"nice": 100})
    assert (options.partition, options.time, options.additional_parameters) == ("gpu", 5, {"nice": 100})
    assert options.wait


def test_every_fault_is_said_at_once() -> None:
    wrong = {"time": 0, "memory_gb": -1, "poll_seconds": 0, "resubmissions": -1, "gpus_per_node": 1, "gres": "gpu:1"}
    with pytest.raises(ConfigurationError) as caught:
        SlurmOptions.checked(**wrong, additional_parameters={"cpus_per_task": 2})
    faults = caught.value.faults
    assert len(faults) == 6
    assert "`hydra.launcher.time` must be above 0, got 0." in faults
    assert "`hydra.launcher.resubmissions` must be at least 0, got -1." in faults
    assert any("gpus_per_node" in each and "gres" in each for each in faults)
    assert any("got cpus_per_task; that is hydra.launcher.cpus_per_task" in each for each in faults)


def test_what_has_no_effect_is_refused() -> None:
    with pytest.raises(ConfigurationError) as caught:
        SlurmOptions.checked(wait=False, resubmissions=3, timeout=60.0, stall_timeout=90.0)
    assert [line.split(",")[0] for line in caught.value.faults] == [
        "`hydra.launcher.stall_timeout` must be below `hydra.launcher.timeout`=60",
        "`hydra.launcher.resubmissions` must be left out with `hydra.launcher.wait=false`",
    ]
