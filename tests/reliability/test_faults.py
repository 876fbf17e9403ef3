"""Short forms of `make test-faults`, and checks that its model of a disk drops what was not synced."""

import os
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def fault_rows(kills: ModuleType) -> ModuleType:
    """tests/reliability/fault_rows.py."""
    import fault_rows

    return fault_rows


def test_what_was_not_synced_is_dropped(fault_rows: ModuleType, tmp_path: Path) -> None:
    from faults.disk_model import Disk

    path = f"{os.path.realpath(tmp_path)}/outputs"
    operations = [
        ("mkdir", path),
        ("create", f"{path}/.a", 1),
        ("write", 1, 0, b"whole"),
        ("sync", 1),
        ("rename", f"{path}/.a", f"{path}/a"),
        ("sync", path),
        ("sync", path.removesuffix("/outputs")),
        ("write", 1, 5, b" and more"),
        ("create", f"{path}/b", 2),
        ("write", 2, 0, b"nothing of this is sure"),
        ("rename", f"{path}/a", f"{path}/c"),
    ]
    found = set()
    for seed in range(60):
        disk = Disk(tmp_path)
        for operation in operations:
            disk.do(*operation)
        disk.write_after_cut(tmp_path, random.Random(seed), names=["outputs"])
        left = {each.name: each.read_bytes() for each in (tmp_path / "outputs").iterdir()}
        assert len(left.keys() & {"a", "c"}) == 1, "a rename is never half done"
        assert next(left[name] for name in ("a", "c") if name in left).startswith(b"whole")
        found |= {(name, len(content)) for name, content in left.items()}
    assert {("a", 5), ("c", 14), ("b", 0), ("b", 23)} <= found
    assert any(name == "b" and 0 < size < 23 for name, size in found)


RECORDS = """
import time
from pathlib import Path
from runmanager.records.files.atomic_files import replace_file
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.ownership import claim_run
from runmanager.records.sweep.sweep_record import PlannedCell, SweepCommand, write_cells

sweep = SweepPaths(Path("outputs/sweep"))
write_cells(sweep, [PlannedCell("s", "a", {"lr": 0.1})], SweepCommand(["c"]))
me = ProcessIdentity.current()
folder = claim_run(sweep.run("a"), RunRecord(name="a", signature="s", status=Status.RUNNING, config={}, owner=me))
for epoch in range(1, 4):
    folder.sync_epochs()
    replace_file(folder.paths.checkpoint, str(epoch))
    folder.append(EpochRecord(epoch))
time.sleep(1.6)  # as in a long epoch: no further line comes
replace_file(folder.paths.config, "later")
"""


def test_no_power_cut_damages_a_record_or_takes_more_than_the_last_second(
    fault_rows: ModuleType, tmp_path: Path
) -> None:
    from faults.disk_model import Disk
    from faults.small import read_journal, seam_variables

    from runmanager.records.files.paths import SweepPaths
    from runmanager.records.storage.reader import read_sweep
    from runmanager.records.sweep.sweep_record import read_sweep_record

    journal = tmp_path / "journal"
    environment = os.environ | seam_variables(tmp_path, journal)
    subprocess.run([sys.executable, "-c", RECORDS], cwd=tmp_path, env=environment, check=True, timeout=120)
    operations = read_journal(str(journal))
    written = [at for at, kind, *words in operations if kind == "write" and b'"epoch":' in words[2]]
    sweep = SweepPaths(tmp_path / "outputs" / "sweep")
    for end in range(len(operations) + 1):
        for seed in range(4):
            disk = Disk(tmp_path)
            for _, *operation in operations[:end]:
                disk.do(*operation)
            disk.write_after_cut(tmp_path, random.Random(seed), names=["outputs"])
            contents, record = read_sweep(sweep), read_sweep_record(sweep)
            assert not contents.damaged, (end, seed)
            assert record is None or [cell.run for cell in record.planned] == ["a"]
            numbers = [epoch.epoch for run in contents.runs for epoch in run.epochs]
            if contents.runs and (checkpoint := contents.runs[0].paths.checkpoint).exists():
                assert numbers[: int(checkpoint.read_text()) - 1] == list(range(1, int(checkpoint.read_text())))
            cut_at = operations[min(end, len(operations) - 1)][0]
            old = [number for number, at in enumerate(written, 1) if at < cut_at - 1.3]
            assert numbers[: len(old)] == old, "they had been there for more than a second"


@pytest.mark.release
def test_a_loop_loses_nothing_by_power_cuts(fault_rows: ModuleType, tmp_path: Path) -> None:
    tally = fault_rows.cut_power(tmp_path, 3, 1, kinds=("loop",), pace="0")
    assert (tally.tried, list(tally.faults())) == (3, [])


@pytest.mark.release
def test_no_power_cut_leaves_a_finished_run_without_its_last_epoch(fault_rows: ModuleType, tmp_path: Path) -> None:
    from faults.disk_model import Disk
    from faults.power_cut import record_command
    from faults.small import untrue_states

    recorded = record_command(tmp_path, "loop", pace="0")
    operations = list(enumerate(recorded.operations, 1))
    for end in [end for end, (_, kind, *words) in operations if kind == "rename" and words[1].endswith("/run.json")]:
        for seed in range(4):
            disk = Disk(tmp_path, recorded.before)
            for _, *operation in recorded.operations[:end]:
                disk.do(*operation)
            disk.write_after_cut(tmp_path, random.Random(seed), names=["outputs"])
            assert untrue_states(recorded.sweep) == []


@pytest.mark.release
def test_a_loop_recovers_from_a_full_disk(fault_rows: ModuleType, tmp_path: Path) -> None:
    tally = fault_rows.refuse(tmp_path, 3, 1, program="loop", kind="full")
    assert (tally.tried, list(tally.faults())) == (3, [])


CLAIM = """
from pathlib import Path
from runmanager.errors import NoRoomError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.storage.ownership import claim_run

record = RunRecord(name="a", signature="s", status=Status.RUNNING, config={}, owner=ProcessIdentity.current())
try:
    claim_run(SweepPaths(Path("outputs/sweep")).run("a"), record)
except NoRoomError as error:
    print(error)
claim_run(SweepPaths(Path("outputs/sweep")).run("a"), record)
"""


def test_a_claim_without_room_for_the_renamed_folder_says_so(fault_rows: ModuleType, tmp_path: Path) -> None:
    from faults.small import ERRORS, seam_variables

    for number in (1, 2):  # of the record in the prepared folder; of that folder
        folder = tmp_path / str(number)
        folder.mkdir()
        refused = {"refuse": ERRORS["full"], "kinds": ["rename"], "first": number, "last": number}
        variables = os.environ | seam_variables(folder, folder / "operations", **refused)
        call = [sys.executable, "-c", CLAIM]
        done = subprocess.run(call, cwd=folder, env=variables, check=True, capture_output=True, text=True, timeout=120)
        assert "/sweep/runs/a/run.json must find room on the disk" in done.stdout, number
        assert [each.name for each in (folder / "outputs" / "sweep" / "runs").iterdir()] == ["a"]


def test_a_new_row_stands_in_the_order_of_the_faults(fault_rows: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("| fault | times tried |\n| --- | --- |\n\nText.\n")
    wanted = ["quota", "deleted", "run deleted", "forkserver"]
    for name in ("deleted", "forkserver", "quota", "run deleted", "deleted"):
        fault = fault_rows.FAULTS[name]
        fault_rows.write(page, fault, f"| {fault.what} | tried |")
    rows = "".join(f"| {fault_rows.FAULTS[name].what} | tried |\n" for name in wanted)
    assert page.read_text() == f"| fault | times tried |\n| --- | --- |\n{rows}\nText.\n"
