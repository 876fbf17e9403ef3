"""Runs on a Slurm cluster, submitted as array jobs and followed until they end."""

__all__ = ["register_slurm"]


def register_slurm() -> None:
    """Register `hydra/launcher=slurm` with Hydra."""
    from hydra.core.config_store import ConfigStore  # a tenth of a second that a job on its node does not need
    from omegaconf import OmegaConf

    from runmanager.launching.hydra_launcher import register_plugin
    from runmanager.launching.slurm.launcher import SlurmLauncher
    from runmanager.launching.slurm.options import SlurmOptions

    register_plugin(SlurmLauncher)
    node = OmegaConf.structured(SlurmOptions)
    OmegaConf.set_readonly(node, None)  # else overrides could not change it
    ConfigStore.instance().store(group="hydra/launcher", name="slurm", node=node, provider="runmanager")
