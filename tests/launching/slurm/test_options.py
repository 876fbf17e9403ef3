"""Settings of the Slurm launcher: all faults are reported together."""

import pytest

from runmanager.errors import ConfigurationError
from runmanager.launching.hydra_launcher import checked
from runmanager.launching.slurm.options import SlurmOptions


def test_given_settings_are_used() -> None:
    options = checked(SlurmOptions(partition="gpu", time=5, additional_parameters={"nice": 100}))
    assert (options.partition, options.time, options.additional_parameters) == ("gpu", 5, {"nice": 100})
    assert options.wait


def test_all_faults_are_reported_together() -> None:
    wrong = {"time": 0, "memory_gb": -1, "poll_seconds": 0, "resubmissions": -1, "gpus_per_node": 1, "gres": "gpu:1"}
    with pytest.raises(ConfigurationError) as caught:
        checked(SlurmOptions(**wrong, additional_parameters={"cpus_per_task": 2}))
    faults = caught.value.faults
    assert len(faults) == 6
    assert "`hydra.launcher.time` must be above 0, got 0." in faults
    assert "`hydra.launcher.resubmissions` must be at least 0, got -1." in faults
    assert any("gpus_per_node" in each and "gres" in each for each in faults)
    assert any("got cpus_per_task; use hydra.launcher.cpus_per_task" in each for each in faults)


def test_ranks_need_a_gpu_each() -> None:
    with pytest.raises(ConfigurationError, match=r"must be at least `hydra\.launcher.processes_per_run`=2, got 1"):
        checked(SlurmOptions(processes_per_run=2, gpus_per_node=1))
    assert checked(SlurmOptions(processes_per_run=2, gpus_per_node=0)).processes_per_run == 2, "ranks on cores alone"


def test_settings_without_effect_are_rejected() -> None:
    with pytest.raises(ConfigurationError) as caught:
        checked(SlurmOptions(wait=False, resubmissions=3, retries=1, timeout=60.0, stall_timeout=90.0))
    assert [line.split(",")[0] for line in caught.value.faults] == [
        "`hydra.launcher.stall_timeout` must be below `hydra.launcher.timeout`=60",
        "`hydra.launcher.resubmissions` must be left out with `hydra.launcher.wait=false`",
        "`hydra.launcher.retries` must be left out with `hydra.launcher.wait=false`",
    ]
