"""Run a sweep from this process, with the application's checks, its launcher and a process for each run."""

from pathlib import Path

from runmanager.records.files.paths import SweepPaths

__all__ = ["run_sweep_in_process"]

_NAME = "sweep"


def run_sweep_in_process(folder: Path, *args: str) -> SweepPaths:
    """Run `runmanager sweep ARGS` with its output under `folder` and return the paths of the sweep.

    Unlike the command, later calls from the same process find Hydra loaded and the fork server running, which saves
    seconds. Raises `SystemExit` if any run does not finish.
    """
    from runmanager.app.hydra_main import main

    status = main(["-m", f"output_root={folder}", f"name={_NAME}", "--quiet", "--yes", *args])
    if status:
        raise SystemExit(f"the sweep ended with status {status}: {' '.join(args)}")
    return SweepPaths(folder / _NAME)
