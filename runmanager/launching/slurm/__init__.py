"""Runs on a Slurm cluster, submitted as array jobs and followed until they end."""

__all__ = ["register_slurm"]


def register_slurm() -> None:
    """Register `hydra/launcher=slurm` with Hydra."""
    # They take a tenth of a second, which a job on its node does not need.
    from runmanager.launching.hydra_launcher import register_launcher
    from runmanager.launching.slurm.launcher import SlurmLauncher
    from runmanager.launching.slurm.options import SlurmOptions

    register_launcher("slurm", SlurmLauncher, SlurmOptions())
