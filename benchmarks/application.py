"""The application called from this process, as somebody calls it: its checks, its launcher, a process for each run."""

from pathlib import Path

from runmanager.records.files.paths import SweepPaths

__all__ = ["run_in_process"]

_NAME = "sweep"


def run_in_process(folder: Path, *words: str) -> SweepPaths:
    """Carry out `runmanager sweep WORDS` with its files under `folder`, and return the sweep's.

    Called again from the same process it finds Hydra loaded and the server of its runs' processes at work: that is the
    difference to the command, and saves seconds. Raises `SystemExit` where not every run is finished.
    """
    from runmanager.app.hydra_main import main

    status = main(["-m", f"output_root={folder}", f"name={_NAME}", "--quiet", "--yes", *words])
    if status:
        raise SystemExit(f"a sweep ended with status {status}: {' '.join(words)}")
    return SweepPaths(folder / _NAME)
