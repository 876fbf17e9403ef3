"""Tests of `runmanager compare BASELINE CANDIDATE` and of `--fail-if`, from sweeps on disk to the exit status."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runmanager.records.run.status import Reason, Status
from runmanager.records.sweep.sweep_record import SweepCommand, write_cells

from ...app.test_reproduce_command import composed
from ...results.conftest import HOST, SweepMaker, timed_epochs
from ..conftest import rows_of

CPU = {"lr": 0.01, "batch_size": 100, "num_workers": 0, "device": "cpu"}
OLD = HOST
NEW = msgspec.structs.replace(
    HOST, commit="fedcba9876543210", libraries={"torch": "2.16.0"}, host="forge", device_name="Zen 5"
)


def write(
    folder: Path,
    seconds: float,
    *,
    config: dict[str, Any] = CPU,
    first: int = 0,
    step: int = 1,
    seeds: int = 5,
    **fields: Any,
) -> SweepMaker:
    """Write a sweep with two batch sizes; an epoch takes about `seconds`, and runs differ by half a percent."""
    sweep = SweepMaker(folder)
    cells = [config | {"batch_size": size, "seed": seed} for seed in range(seeds) for size in (100, 1000)]
    sweep.plan(*cells)
    for number, cell in enumerate(cells):
        taken = seconds * (1 + 0.005 * (2 * cell["seed"] % 5 - 2))  # no trend
        epochs = timed_epochs([9.0] + [taken] * 6)
        sweep.run(cell, epochs, minute=first + step * number, **fields)
    return sweep


def test_two_sweeps_are_compared_cell_by_cell_and_their_environments_are_named(
    command: Callable, tmp_path: Path
) -> None:
    write(tmp_path / "old", 2.0, environment=OLD)
    write(tmp_path / "new", 1.0, environment=NEW, first=100)
    words = "compare", str(tmp_path / "old"), str(tmp_path / "new")
    rows = rows_of(command(*words, "--format", "csv").out)
    assert [row["batch_size"] for row in rows] == ["100", "1000"]
    for row in rows:
        assert (row["axis"], row["baseline"], row["candidate"]) == ("sweep", "old", "new")
        assert row["verdict"] == "faster" and float(row["speedup"]) == pytest.approx(2)
        for named in (
            "commit differs: 0123456789 (sweep=old), fedcba9876 (sweep=new)",
            "torch differs: 2.15.0 (sweep=old), 2.16.0 (sweep=new)",
            "host differs: anvil (sweep=old), forge (sweep=new)",
            "device differs: Zen 4 (sweep=old), Zen 5 (sweep=new)",
            "one side ran after the other",  # the drift rule
        ):
            assert row["reason"].count(named) == 1, row["reason"]
    text = command(*words).out
    assert "sweep=new is 2.00 times as fast as sweep=old" in text and "Of 2 measured pairs: 2 faster." in text
    assert command(*reversed_sweeps(words), "--format", "csv").out.count(",slower,") == 2


def reversed_sweeps(words: tuple[str, ...]) -> tuple[str, ...]:
    name, baseline, candidate = words
    return name, candidate, baseline


def test_what_is_not_the_environment_still_makes_runs_incomparable(command: Callable, tmp_path: Path) -> None:
    write(tmp_path / "old", 2.0)
    write(tmp_path / "new", 2.0, environment=msgspec.structs.replace(HOST, torch_threads=1), first=100)
    (row, _) = rows_of(command("compare", str(tmp_path / "old"), str(tmp_path / "new"), "--format", "csv").out)
    assert row["verdict"] == "not measured" and "torch threads differs" in row["reason"]
    mixed = SweepMaker(tmp_path / "mixed")
    for seed, environment in enumerate((OLD, NEW)):
        mixed.run(CPU | {"seed": seed}, environment=environment)
    row, _ = rows_of(command("compare", str(tmp_path / "old"), str(tmp_path / "mixed"), "--format", "csv").out)
    assert row["verdict"] == "not measured"  # of two commits within one sweep, neither is the candidate


@pytest.mark.parametrize(
    ("seconds", "in_turns", "condition", "status"),
    [
        (2.0, True, "slower", 0),
        (2.0, False, "slower", 3),  # sweeps that ran one after the other cannot know 3%
        (2.0, False, "slower:20%", 0),
        (2.2, True, "slower", 1),
        (2.2, False, "slower", 3),
        (3.0, False, "slower", 1),
        (2.06, True, "slower:5%", 0),
        (3.0, False, "worse:val_loss:0.1", 0),  # only the speed differs
        (3.0, False, "worse:val_accuracy:0.1", 0),  # bit-equal in each pair of runs
    ],
)
def test_exit_status_of_a_condition(
    command: Callable, tmp_path: Path, seconds: float, in_turns: bool, condition: str, status: int
) -> None:
    turns: dict[str, int] = {"step": 2, "seeds": 20} if in_turns else {}
    write(tmp_path / "old", 2.0, environment=OLD, **turns)
    write(tmp_path / "new", seconds, environment=NEW, first=1 if in_turns else 100, **turns)
    if "val_loss" in condition:
        vary_loss(tmp_path / "old")
        vary_loss(tmp_path / "new")
    done = command("compare", str(tmp_path / "old"), str(tmp_path / "new"), "--fail-if", condition)
    assert done.status == status, done.out
    said = {0: "passed", 1: "failed", 3: "not known"}[status]
    assert f"`--fail-if {condition}` {said}: " in done.out
    suggested = "runmanager duel --baseline-rev=0123456789 --candidate-rev=fedcba9876"
    assert (suggested in done.out) is (status == 3)


def vary_loss(folder: Path) -> None:
    """Make the losses of runs differ by their seed, so that their noise is known."""
    for file in (folder / "runs").glob("*/epochs.jsonl"):
        seed = msgspec.json.decode((file.parent / "run.json").read_bytes())["config"]["seed"]
        lines = [msgspec.json.decode(line) for line in file.read_bytes().splitlines()]
        lines = [line | {"val_loss": line["val_loss"] + 0.001 * seed * (1 + (folder.name == "old"))} for line in lines]
        file.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def test_a_failed_run_fails_and_is_named(command: Callable, tmp_path: Path) -> None:
    write(tmp_path / "old", 2.0)
    new = write(tmp_path / "new", 1.0, first=100)
    name = new.run(
        CPU | {"seed": 9}, [], status=Status.FAILED, reason=Reason.OUT_OF_MEMORY, message="it asked for 9 GiB"
    )
    done = command("compare", str(tmp_path / "old"), str(tmp_path / "new"), "--fail-if", "slower:20%")
    assert done.status == 1
    assert f"failed: run {tmp_path}/new/runs/{name} failed (out_of_memory): it asked for 9 GiB" in done.out


@pytest.mark.parametrize("end", ["running", "damaged", "copied"])
def test_what_has_not_ended_or_cannot_be_read_is_not_passed(command: Callable, tmp_path: Path, end: str) -> None:
    write(tmp_path / "old", 2.0)
    new = write(tmp_path / "new", 1.0, first=100)
    words = "compare", str(tmp_path / "old"), str(tmp_path / "new"), "--fail-if", "slower:20%"
    assert command(*words).status == 0
    name = new.run(CPU | {"seed": 9}, [], status=Status.RUNNING, ended_at=None)
    folder = tmp_path / "new" / "runs" / name
    if end == "damaged":
        (folder / "run.json").write_bytes(b"{")
    elif end == "copied":  # it counts once, and is known
        shutil.rmtree(folder)
        some = next((tmp_path / "new" / "runs").iterdir())
        shutil.copytree(some, some.with_name("copy"))
    done = command(*words)
    assert done.status == (0 if end == "copied" else 3), done.out
    said = {"running": f"not known: run {folder} has not ended", "damaged": f"not known: {folder}/run.json is damaged"}
    assert said.get(end, "passed") in done.out


def test_several_conditions_and_a_comment(command: Callable, tmp_path: Path) -> None:
    write(tmp_path / "old", 2.0)
    write(tmp_path / "new", 3.0, environment=NEW, first=100)
    words = "compare", str(tmp_path / "old"), str(tmp_path / "new"), "--format", "github"
    done = command(*words, "--fail-if", "slower:5%", "--fail-if", "slower:90%")
    assert done.status == 1
    heading, _, failed, passed, *rest = done.out.splitlines()
    assert heading == "### Comparison of new with old: failed"
    assert failed.startswith("- `--fail-if slower:5%` failed: sweep=new is 0.667 times as fast")
    assert passed.startswith("- `--fail-if slower:90%` passed: ")
    table = [line for line in rest if line.startswith("| ")]
    assert len(table) == 4 and rest.count("<details>") == rest.count("</details>") == 1
    assert any("commit differs: 0123456789" in line for line in rest)
    assert command(*words).out.startswith("### Comparison of new with old\n")


def test_names_in_a_comment_notify_and_link_to_nothing(command: Callable, tmp_path: Path) -> None:
    write(tmp_path / "@owner", 2.0)
    write(tmp_path / "[new](https:evil)", 3.0, environment=NEW, first=100)
    out = command("compare", str(tmp_path / "@owner"), str(tmp_path / "[new](https:evil)"), "--format", "github").out
    assert "@<!-- -->owner" in out and "@owner" not in out
    assert r"[new]\(https:evil)" in out and "](https" not in out


def test_conditions_within_one_sweep_name_the_duel_of_both_sides(
    command: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a duel of the same job: its settings are all that differ from the defaults, however they were given."""
    write(tmp_path / "one", 2.0, seeds=20, config=composed("model=mlp", "model.hidden=[8]", "lr=0.5", "device=cpu"))
    words = "compare", str(tmp_path / "one"), "--axis", "batch_size", "--fail-if", "slower", "--format", "json"
    done = command(*words)
    assert done.status == 0 and "`--fail-if slower` passed" in done.err and done.out.startswith("[")
    open_ = command(*words[:4], "--drift", "0.5", "--fail-if", "slower:0.01%")
    assert open_.status == 3
    job = "model=mlp lr=0.5 num_workers=0 device=cpu 'model.hidden=[8]'"
    assert f"`runmanager duel batch_size=100 batch_size=1000 {job}`\n" in open_.out
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    write(tmp_path / "two", 2.0, config=composed("device=cuda"))
    words = ("compare", str(tmp_path / "two"), "--axis", "batch_size", "--fail-if", "slower:0.01%")
    assert command(*words).out.endswith("num_workers=0 device=cuda` on a machine with cuda\n")
    of_seeds = command(*words[:2], "--axis", "seed", *words[4:]).out
    assert "No `runmanager duel` could say: its sides differ in more than the seed." in " ".join(of_seeds.split())


def test_a_stored_target_is_not_in_a_command_that_is_proposed(command: Callable, tmp_path: Path) -> None:
    config = composed("model=custom", "model._target_=os.system", "dataset=fake")
    write(tmp_path / "foreign", 2.0, config=config)
    done = command("compare", str(tmp_path / "foreign"), "--axis", "batch_size", "--fail-if", "slower:0.01%")
    assert done.status == 3 and "os.system" not in done.out
    assert "`runmanager duel batch_size=100 batch_size=1000` with the other settings of the sweep" in done.out


def test_a_custom_loop_has_no_duel(command: Callable, tmp_path: Path) -> None:
    write(tmp_path / "loop", 2.0)
    done = command("compare", str(tmp_path / "loop"), "--axis", "batch_size", "--fail-if", "slower:0.01%")
    assert done.status == 3
    assert "No `runmanager duel` could say" in done.out and "This could say" not in done.out


@pytest.mark.parametrize("format_", ["text", "json"])
def test_without_an_axis_the_only_setting_that_varies_is_judged(
    command: Callable, tmp_path: Path, format_: str
) -> None:
    one = write(tmp_path / "one", 2.0, seeds=20)
    words = "compare", str(tmp_path / "one"), "--fail-if", "slower", "--fail-if", "worse:val_accuracy:0.01"
    done = command(*words, "--format", format_)
    assert (
        done.status == 0 and "`--fail-if slower` passed: batch_size=1000 is 1.000 times as fast" in done.out + done.err
    )
    one.plan(*(CPU | {"batch_size": size, "lr": lr} for size in (100, 1000) for lr in (0.01, 0.1)))
    several = command(*words, "--format", format_)
    assert several.status == 3
    assert "there is no pair to compare; `--axis` names the setting to compare." in several.out + several.err


def test_settings_of_a_script_have_no_duel_and_more_seeds_are_named(command: Callable, tmp_path: Path) -> None:
    write(tmp_path / "one", 2.0, unsigned=(), cell_command=("runmanager", "run", "train.py", "batch_size=100"))
    done = command("compare", str(tmp_path / "one"), "--axis", "batch_size", "--fail-if", "slower:0.01%")
    assert done.status == 3
    assert "No `runmanager duel` could say" in done.out and "More seeds narrow the interval." in done.out
    assert "batch_size=1000 lr" not in done.out


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (
            (
                "runmanager",
                "run",
                "--argument",
                "{name}={value}",
                "train.py",
                "batch_size=100",
                "seed=0",
                "--",
                "a=b c",
            ),
            "--argument '{name}={value}' train.py batch_size=100 seed=0,1,2,3,4 -- 'a=b c'`",
        ),
        (
            ("python", "train.py", "-m", "hydra/sweeper=runmanager", "batch_size=100", "seed=0"),
            "train.py batch_size=100 seed=0,1,2,3,4`",
        ),
        (("runmanager", "run", "-m", "pkg.train", "batch_size=100"), "takes a script by its file, not with -m"),
    ],
)
def test_the_duel_of_a_script_has_its_options_and_arguments(
    command: Callable, tmp_path: Path, cell: tuple[str, ...], expected: str
) -> None:
    for name, first in (("old", 0), ("new", 100)):
        write(tmp_path / name, 2.0, first=first, unsigned=(), cell_command=cell)
    done = command("compare", str(tmp_path / "old"), str(tmp_path / "new"), "--fail-if", "slower")
    assert done.status == 3 and expected in done.out


def test_the_duel_of_the_built_in_job_leaves_out_the_options_of_its_sweep(command: Callable, tmp_path: Path) -> None:
    for name, first in (("old", 0), ("new", 100)):
        sweep = write(tmp_path / name, 2.0, first=first)
        words = ("runmanager", "sweep", "--exclude", "lr==1 and seed==3", "batch_size=100,1000", "epochs=7", "seed=0,1")
        write_cells(sweep.paths, (), SweepCommand(words, axes={}))
    done = command("compare", str(tmp_path / "old"), str(tmp_path / "new"), "--fail-if", "slower")
    assert done.status == 3 and done.out.count("exclude") == done.out.count("lr==1") == 0
    assert "batch_size=100 epochs=7 seed=0,1`" in done.out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--axis", "device"), "`--axis` must be left out where two sweeps are compared"),
        (("--baseline", "cpu"), "`--baseline` must be left out"),
        (("--fail-if", "faster"), "`--fail-if` must be a condition"),
        (("--fail-if", "worse:f2:1"), "f2"),
    ],
)
def test_faults_are_refused(command: Callable, tmp_path: Path, words: tuple[str, ...], expected: str) -> None:
    for name in ("old", "new"):
        write(tmp_path / name, 2.0, seeds=1)
    done = command("compare", str(tmp_path / "old"), str(tmp_path / "new"), *words)
    assert done.status == 2 and expected in done.err
    same = command("compare", str(tmp_path / "old"), str(tmp_path / "old"))
    assert same.status == 2 and "must be different" in same.err


def test_settings_that_one_version_added_do_not_keep_cells_apart(command: Callable, tmp_path: Path) -> None:
    write(tmp_path / "old", 2.0)
    new = SweepMaker(tmp_path / "new")
    for seed in range(5):
        for size in (100, 1000):
            cell = CPU | {"batch_size": size, "seed": seed, "model": {"dropout": 0.1}}
            new.run(cell, timed_epochs([9.0] + [1.0 + 0.01 * seed] * 6), minute=100 + seed)
    done = command("compare", str(tmp_path / "old"), str(tmp_path / "new"), "--format", "markdown")
    assert done.out.count("| faster |") == 2
    assert "1 setting that only one of the sweeps knows is not matched: model.dropout=0.1 (new)." in done.out


def test_sweeps_without_equal_settings_are_told_so_in_one_sentence(command: Callable, tmp_path: Path) -> None:
    write(tmp_path / "old", 2.0, config=CPU | {"model": "mlp"}, seeds=2)
    added = {f"option_{number}": number for number in range(9)}
    write(tmp_path / "new", 1.0, config=CPU | {"model": "cnn", "more": added}, seeds=2)
    done = command("compare", str(tmp_path / "old"), str(tmp_path / "new"))
    text = " ".join(done.out.split())
    assert (
        "Nothing to compare: no run of new has the settings of a run of old. model differs: cnn (new), mlp (old)."
        in text
    )
    assert "are equal" not in text and "could not be compared" not in text
    assert "9 settings that only one of the sweeps knows are not matched: " in text and "and 4 more." in text
