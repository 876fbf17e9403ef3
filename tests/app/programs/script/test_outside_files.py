"""What unchanged scripts write outside their run folders: event files are theirs, shared files are named."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from runmanager.app.programs import outside_files
from runmanager.app.programs.outside_files import OutsideWatch
from runmanager.records.files.paths import RunPaths
from runmanager.results.program_files.folder_metrics import metrics_by_step

from ....processes import wait_for_output, wait_until
from .conftest import Folder
from .test_script_program import records_of, sweep_of

WRITER = """
import argparse, os, pathlib
from torch.utils.tensorboard import SummaryWriter
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--log-dir")
lr = parser.parse_args().lr
default, fixed = SummaryWriter(), SummaryWriter("fixed/folder")
for step in range(3):
    default.add_scalar("Loss/val", lr * (3 - step), step)
    fixed.add_scalar("fid", 10 * lr + step, step)
    fixed.add_scalar("Loss/val", 7.0, step)
default.close(), fixed.close()
name = next(pathlib.Path("fixed/folder").glob(f"*.{os.getpid()}.*")).name
for foreign in (name.rsplit(f".{os.getpid()}.")[0], name.replace(f".{os.getpid()}.", ".99999999.")):
    with open(f"fixed/{foreign}", "w"):
        pass
"""

SHARING = """
import argparse, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--lr")
parser.add_argument("--save-dir", default=".")
args = parser.parse_args()
folder = pathlib.Path(args.save_dir)
folder.joinpath("last.ckpt").write_text(args.lr)
folder.joinpath(f"own_{args.lr}.ckpt").write_text(args.lr)
pathlib.Path(__file__).with_name("notes.py").write_text("")
print("loss=" + args.lr)
"""


def test_event_files_of_the_own_processes_are_the_metrics_of_each_cell(folder: Folder) -> None:
    folder.write("train.py", WRITER)
    done = folder.run("sweep", "--name", "events", "--workers", "2", "train.py", "lr=0.1,0.2")
    assert done.status == 0, done.err
    for lr, record in records_of(folder, "events").items():
        paths = sweep_of(folder, "events").run(record.name)
        assert record.origins == dict.fromkeys(record.summary or {}, "event file elsewhere")
        assert set(record.origins) == {"runs/Loss/val", "fixed/folder/Loss/val", "fid"}
        assert record.summary == pytest.approx(
            {"runs/Loss/val": lr, "fixed/folder/Loss/val": 7.0, "fid": 10 * lr + 2}, rel=1e-6
        )
        curve = metrics_by_step(paths, record.origins)["runs/Loss/val"]
        assert curve == pytest.approx({0: 3 * lr, 1: 2 * lr, 2: lr}, rel=1e-6)
        (note,) = record.notes
        assert "event files below" in note and "may be of another program, and not used: fixed/events.out" in note
        assert note.endswith("; with log-dir={run_dir} or --chdir each cell writes into its own folder")
        assert len(list(paths.elsewhere.rglob("*tfevents*"))) == 2


def test_a_file_that_several_cells_wrote_is_named_with_the_way_out(folder: Folder) -> None:
    folder.write("train.py", SHARING)
    words = ("sweep", "--name", "shared", "--scalar", r"loss=loss=(\S+)", "train.py", "lr=1,2,3")
    with (folder.path / "command.log").open("w") as log:  # the command's own output is nobody's clash
        shell = subprocess.run(
            ["/bin/sh", "-c", 'exec "$@" | cat > tee.log', "sh", *folder.start(*words, "--dry-run").args[:3], *words],
            cwd=folder.path,
            env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "240", "PYTHONPATH": str(Path(__file__).parents[4])},
            stdout=log,
            stderr=log,
            check=False,
        )
    assert shell.returncode == 0, (folder.path / "command.log").read_text()
    said = (
        f"Several runs wrote last.ckpt in {folder.path}: one may have read what another left. "
        "With `--chdir` or `save-dir={run_dir}`, in a new sweep, each writes into its run folder."
    )
    assert said in (folder.path / "tee.log").read_text()
    assert said in folder.run("show", "shared", "lr=2").out
    report = re.sub(r"<[^>]+>", "", sweep_of(folder, "shared").report.read_text())
    assert "Several runs wrote last.ckpt in" in report


@pytest.mark.parametrize("words", [("train.py",), ("-m", "package.train")])
def test_with_chdir_each_cell_works_in_its_run_folder(folder: Folder, words: tuple[str, ...]) -> None:
    source = SHARING if words == ("train.py",) else f"import package.other\n{SHARING}"
    folder.write("train.py" if words == ("train.py",) else "package/train.py", source)
    folder.write("package/other.py", "")
    given = ("--scalar", r"loss=loss=(\S+)", *words, "lr=1,2")
    done = folder.run("sweep", "--name", "apart", "--chdir", *given)
    assert done.status == 0 and "runs wrote" not in done.out, done.err
    for lr, record in records_of(folder, "apart").items():
        assert (sweep_of(folder, "apart").run(record.name).root / "last.ckpt").read_text() == str(lr)
        assert record.cell_command is not None and "--chdir" in record.cell_command
    assert not (folder.path / "last.ckpt").exists()
    assert "0 runs to do, 2 finished already" in folder.run("sweep", "--name", "apart", *given).out


def test_a_folder_that_another_cell_may_have_made_is_told_from_an_error_of_the_script(folder: Folder) -> None:
    folder.write("train.py", "import os, sys\nos.mkdir('saved')\nprint('loss: 0.5')\n")
    done = folder.run("sweep", "--name", "together", "train.py", "lr=1,2")
    said = (
        "FileExistsError: [Errno 17] File exists: 'saved'; another cell may have made it: with --chdir each has its own"
    )
    (failed,) = [each.message for each in records_of(folder, "together").values() if each.message]
    assert done.status == 1 and failed == said and said in done.out
    assert folder.run("sweep", "--name", "apart", "--chdir", "train.py", "lr=1,2").status == 0


APPLICATION = """
import hydra, pathlib

@hydra.main(version_base=None, config_path=None)
def main(config):
    pathlib.Path("last.ckpt").write_text(str(config.lr))
    return config.lr

main()
"""


def test_an_application_has_the_same_by_a_setting_of_hydra(folder: Folder) -> None:
    folder.write("app.py", APPLICATION)
    done = folder.run("sweep", "--name", "shared", "app.py", "+lr=1,2")
    assert done.status == 0, done.err
    assert f"Several runs wrote last.ckpt in {folder.path}: " in done.out
    assert "With `--chdir` (`hydra.job.chdir=true`), in a new sweep" in done.out
    (folder.path / "last.ckpt").unlink()
    done = folder.run("sweep", "--name", "apart", "--chdir", "app.py", "+lr=1,2")
    assert done.status == 0 and "runs wrote" not in done.out, done.err
    assert len(list(sweep_of(folder, "apart").runs.glob("*/last.ckpt"))) == 2
    assert not (folder.path / "last.ckpt").exists()


def test_the_built_in_job_refuses_chdir(folder: Folder) -> None:
    done = folder.run("sweep", "--chdir", "optimizer.lr=1,2")
    assert done.status == 2
    assert done.err.strip() == (
        "error: `--chdir` must be left out for the built-in job, got it; it writes into its run folders alone."
    )


STEPS = """
import argparse, os, pathlib, time
parser = argparse.ArgumentParser()
parser.add_argument("--out", type=pathlib.Path)
parser.add_argument("--resume-from")
args = parser.parse_args()
print("resumed from", args.resume_from)
if args.resume_from is None:
    for number in SAVED:
        args.out.joinpath(f"checkpoint-{number}").mkdir()
        os.utime(args.out / f"checkpoint-{number}", (5, 5))
    if SAVED:
        os.utime(args.out / "checkpoint-2", (4, 4))
    pathlib.Path("waits").touch()
    while pathlib.Path("waits").exists():
        time.sleep(0.01)
"""


@pytest.mark.parametrize(("saved", "found"), [((2, 9, 10), "checkpoint-10"), ((), "")])
def test_a_killed_cell_resumes_from_the_newest_match(folder: Folder, saved: tuple[int, ...], found: str) -> None:
    folder.write("train.py", STEPS.replace("SAVED", repr(saved)))
    words = ("--resume-with", "resume-from={run_dir}/checkpoint-*", "train.py", "out={run_dir}")
    driver = folder.start("run", "--name", "kills", *words)
    wait_until(lambda: (folder.path / "waits").exists())
    (root,) = sweep_of(folder, "kills").runs.iterdir()
    os.kill(json.loads((root / "run.json").read_text())["owner"]["pid"], signal.SIGKILL)
    driver.wait()
    (folder.path / "waits").unlink()
    again = folder.start("run", "--name", "kills", *words)
    if not found:
        wait_until(lambda: (folder.path / "waits").exists())
        (folder.path / "waits").unlink()
    said, _ = wait_for_output(again)
    assert again.returncode == 0
    log = (root / "run.log").read_text().splitlines()
    assert log[-1].endswith(
        f"resumed from {root / found if found else None}"
    )  # the killed one may have begun this line
    missing = "nothing to resume from: no file matches {run_dir}/checkpoint-*, so it starts without resume-from"
    assert (missing in json.loads((root / "run.json").read_text())["notes"]) is not bool(found)
    assert (missing in said) is not bool(found)


def test_a_large_tree_is_searched_within_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(outside_files, "_MAX_ENTRIES", 100)
    watch = OutsideWatch(RunPaths(tmp_path / "outputs/sweep/runs/one"))
    (tmp_path / "model.pt").touch()  # its time is that of the kernel's last tick, which was before
    for skipped in (".git/a", "__pycache__/a", "outputs/sweep/runs/one/a", "env/a", "env/pyvenv.cfg", "code.py"):
        file = tmp_path / skipped
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert watch.finish() == []
    changed = watch.files(None, argument="")
    assert changed is not None and list(changed.files) == ["model.pt"]
    for number in range(300):
        (tmp_path / f"{number}.txt").touch()
    (note,) = watch.finish()
    assert note.startswith(f"not all files below {tmp_path} were looked at")
