"""Figures of two versions of this package in turns: `python -m benchmarks.versions OLD_CHECKOUT [FIGURE ...]`.

OLD_CHECKOUT is a work tree of another commit with a `.venv` of its own, in which that version is installed. A figure
that the other version cannot give is told.
"""

import argparse
import subprocess
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.interleaving import StoppingRule, run_interleaved
from benchmarks.processes import clean_environment
from benchmarks.rows import HEADING, ratio_row, table_line

__all__ = ["FIGURES", "figure_of"]

_TINY = "'dataset.size=200', 'dataset.val_size=100', 'epochs=1', 'device=cpu', 'hydra.launcher.workers=2', '--quiet'"
_NEW_FOLDER = "(cwd := Path(tempfile.mkdtemp(dir=folder)))"
FIGURES = {
    "first_words": "startup._seconds_to_first_words(folder)",
    "first_run": "startup._seconds_to_first_run(folder, *startup._COMMANDS['`runmanager sweep`'])",
    "instant_cells": "sweep_overhead._seconds(folder, 'instant_application', "
    "sweep_overhead._OURS['two workers'], num_cells=60)",
    "application_cells": "sweep_overhead._seconds(folder, 'small_application', "
    "sweep_overhead._SMALL_APPLICATION['two workers'], num_cells=30)",
    "job_cells": f"run_python('-m', 'runmanager', '-m', 'seed=range(0,8)', {_TINY}, folder={_NEW_FOLDER}).seconds",
    "script_cells": "seconds_of_a_script(2)",
    "script_cells_on_four": "seconds_of_a_script(4)",
    "driver_memory": "driver_memory._peak_bytes(folder, 200)",
    "two_workers": "two_workers._span_seconds(folder, 2)",
    "tracking_overhead": "tracked_over_untracked()",
    "board": "seconds_to_the_board()",
    "ui_delay": "median_delay()",
    "slurm_submission": "seconds_to_submit(500)",
}
"""For each figure, the expression that gives it, where `folder` is an empty folder."""
_PREAMBLE = """
import os, random, shutil, sys, tempfile
from pathlib import Path
from statistics import median
from benchmarks import board, driver_memory, startup, sweep_overhead, tracking_overhead, two_workers, ui_delay
from benchmarks.command_line import Settings
from benchmarks.interleaving import StoppingRule
from benchmarks.processes import RUNMANAGER, run_python
from benchmarks.stored_sweep import write_stored_sweep
folder = Path(sys.argv[1])

def seconds_of_a_script(workers):
    folder.joinpath("script.py").write_text("import sys; print(sys.argv[1], 'loss=0.5')")
    words = ("sweep", "--workers", str(workers), "--quiet", "../script.py", "seed=range(0,20)")
    return run_python(*RUNMANAGER, *words, folder=Path(tempfile.mkdtemp(dir=folder))).seconds

def tracked_over_untracked():
    import torch
    rule = StoppingRule(min_rounds=5, max_rounds=5)
    settings = Settings(stopping_rule=rule, seed=0, writes=False, command="")
    tracking_overhead.keep_freed_memory()
    untracked, tracked = tracking_overhead._seconds_per_epoch(
        settings, torch.device("cpu"), tracking_overhead._PLAIN, tracking_overhead.RunOverheads()
    )
    return median(ours / other for ours, other in zip(tracked, untracked))

def seconds_to_the_board():
    sweep = write_stored_sweep(folder / "many", num_runs=board._NUM_RUNS, num_epochs=board._NUM_EPOCHS)
    for run in board.run_names(sweep):
        board._write_events(sweep.run(run))
    return board._seconds(sweep, *board._OURS, str(sweep.root))

def seconds_to_submit(cells):
    place, checkout = folder / "slurm", Path(tracking_overhead.__file__).resolve().parents[1]
    shutil.copytree(checkout / "tests" / "slurm", place)
    script = place / "start_slurm.sh"
    script.write_text(script.read_text().replace("MaxArraySize=5", "MaxArraySize=1001"))
    sys.path.insert(0, str(place))
    from loopback import running_slurm
    folder.joinpath("daemons").mkdir()
    with running_slurm(folder / "daemons") as slurm:
        slurm("scontrol", "update", "nodename=loopback", "state=drain", "reason=nothing is to run")
        options = ("hydra/launcher=slurm", "hydra.launcher.wait=false", "--quiet", "--yes")
        words = ("-m", "runmanager", "-m", f"seed=range(0,{cells})", "device=cpu", *options)
        os.environ.update(slurm.variables)
        seconds = run_python(*words, folder=Path(tempfile.mkdtemp(dir=folder))).seconds
        assert len(slurm.jobs()) == cells, slurm.jobs()
        slurm("scancel", "--user=root")
    return seconds

def median_delay():
    going = ui_delay._write_sweeps(folder / "outputs")
    with ui_delay._served(folder, f"/sweep/{going.paths.sweep.name}") as reader:
        reader.ask()
        rule = StoppingRule(min_rounds=10, max_rounds=10)
        return median(ui_delay._delays(reader, going, random.Random(0), rule))
"""
_STOPPING_RULE = StoppingRule(min_rounds=6, max_rounds=15, max_seconds=300, half_width=0.03)


def figure_of(checkout: Path, figure: str) -> float:
    """Measure a figure with the package and benchmarks of a checkout. Raises `RuntimeError` where it cannot."""
    with tempfile.TemporaryDirectory() as folder:
        code = f"{_PREAMBLE}print({FIGURES[figure]})"
        environment = {**clean_environment(), "PYTHONPATH": str(checkout)}
        command = [str(checkout / ".venv" / "bin" / "python"), "-c", code, folder]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{checkout}: {figure}: {done.stderr.strip().splitlines()[-1]}")
    return float(done.stdout.split()[-1])


def main() -> None:
    """Print one row for each figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__)
    parser.add_argument("old", type=Path, metavar="OLD_CHECKOUT")
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=", ".join(FIGURES))
    parser.add_argument("--seconds", type=float, default=_STOPPING_RULE.max_seconds, help="for each figure")
    options = parser.parse_args()
    rule = StoppingRule(6, 15, options.seconds, 0.03)
    checkouts = {"new": Path(__file__).resolve().parents[1], "old": options.old.resolve()}
    print(table_line(HEADING))
    for figure in options.figures or FIGURES:
        try:
            values = run_interleaved(
                {side: partial(figure_of, checkout, figure) for side, checkout in checkouts.items()}, stopping_rule=rule
            )
        except RuntimeError as error:
            print(error)
            continue
        print(table_line(ratio_row(f"{figure}: new / old", ours=values["new"], other=values["old"])[0].fields))


if __name__ == "__main__":
    main()
