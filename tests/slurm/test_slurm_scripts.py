"""A sweep of a script on a real Slurm: every death is told as on this machine."""

from typing import Any

from ..app.programs.script.death_script import DEATHS, ENDS, SCALARS, WAYS

MAIN = "import sys\nfrom runmanager.cli.main import run_command\nsys.exit(run_command(sys.argv[1:]))"
SLURM = ("--launcher", "slurm", "--slurm", "poll_seconds=0.3", "--slurm", "time=10")


def test_every_death_of_a_script_is_told_truly(bench: Any) -> None:
    (bench.folder / "train.py").write_text(DEATHS)
    words = ("sweep", "--name", "script", *SLURM, *SCALARS, "train.py", f"way={','.join(WAYS)}", "--", "fit")
    done = bench.end_of(bench.start_python("-c", MAIN, *words))
    assert done.status == 1, done.err
    records = {each.config["way"]: each for each in bench.sweep("script").records}
    assert {way: (str(each.status), each.reason, each.message) for way, each in records.items()} == ENDS
    assert records["fine"].summary == {"loss": 0.125, "val/acc": 0.8}
