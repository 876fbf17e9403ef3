"""Runs on a Slurm cluster, submitted as array jobs and followed until they end."""

__all__ = ["register_slurm"]


def register_slurm() -> None:
    """Register `hydra/launcher=slurm` with Hydra."""
    # They take a tenth of a second, which a job on its node does not need.
    from omegaconf import OmegaConf

    from runmanager.launching.hydra_internals import store_config
    from runmanager.launching.hydra_launcher import register_plugin
    from runmanager.launching.slurm.launcher import SlurmLauncher
    from runmanager.launching.slurm.options import SlurmOptions

    register_plugin(SlurmLauncher)
    node = OmegaConf.structured(SlurmOptions)
    OmegaConf.set_readonly(node, None)  # else overrides could not change it
    store_config("slurm", node, group="hydra/launcher")
