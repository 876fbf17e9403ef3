"""The cache of run summaries: it saves reading and never differs from the files."""

import os
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.stored_sweep import write_stored_sweep
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.status import Status
from runmanager.records.storage.reader import Damage, StoredRun, read_epochs, read_record
from runmanager.records.storage.versioned_file import encode_record
from runmanager.results.load import loader as reading
from runmanager.results.load import summary_cache as keeping
from runmanager.results.load.loader import CachedReader, read_results, read_summary
from runmanager.results.table_model.columns import Table
from runmanager.results.tables.results_table import result_rows

NUM_RUNS = 101


def later() -> int:
    """Return a time long after the files were written."""
    return time.time_ns() + 60 * 10**9


def table(sweep: SweepPaths) -> Table:
    return result_rows(*read_summary(sweep, clock=later))


def whole(sweep: SweepPaths) -> Table:
    """Return the table with all runs read again."""
    return result_rows(*read_results(sweep))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> SweepPaths:
    return write_stored_sweep(tmp_path_factory.mktemp("stored") / "many", num_runs=NUM_RUNS, num_epochs=2)


@pytest.fixture
def sweep(stored: SweepPaths, tmp_path: Path) -> SweepPaths:
    """A copy of the sweep with all runs cached."""
    shutil.copytree(stored.root, tmp_path / "many")
    paths = SweepPaths(tmp_path / "many")
    table(paths)
    assert paths.summaries.exists()
    return paths


@pytest.fixture
def read_again(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the runs whose files are read from now on."""
    names: list[str] = []
    read = reading.read_tolerantly

    def recorded(run: RunPaths, damaged: list[Damage], **options: Any) -> StoredRun | None:
        names.append(run.name)
        return read(run, damaged, **options)

    monkeypatch.setattr(reading, "read_tolerantly", recorded)
    return names


def first(sweep: SweepPaths) -> RunPaths:
    return RunPaths(min(sweep.runs.iterdir()))


def test_cached_runs_are_not_read_again_and_are_equal(sweep: SweepPaths, read_again: list[str]) -> None:
    assert table(sweep) == whole(sweep)
    assert read_again == []


def fail(run: RunPaths) -> None:
    record = msgspec.structs.replace(read_record(run), status=Status.FAILED)
    text = encode_record(record).replace(b'"failed"', b'"failed"  ')  # with the same size
    before = run.record.stat()
    replacement = run.root / "replacement"
    replacement.write_bytes(text)
    assert len(text) == before.st_size
    os.utime(replacement, ns=(before.st_atime_ns, before.st_mtime_ns))
    replacement.replace(run.record)


def rewrite(run: RunPaths) -> None:
    before = run.record.stat()
    run.record.write_bytes(run.record.read_bytes().replace(b"32998", b"32999"))
    os.utime(run.record, ns=(before.st_atime_ns, before.st_mtime_ns))


def go_on(run: RunPaths) -> None:
    run.record.write_bytes(
        encode_record(msgspec.structs.replace(read_record(run), status=Status.RUNNING, owner=ProcessIdentity.current()))
    )


CHANGES: dict[str, Callable[[RunPaths], object]] = {
    "replaced by one as long and as old": fail,
    "written over by one as long and as old": rewrite,
    "running again": go_on,
    "an epoch more": lambda run: run.epochs.write_bytes(run.epochs.read_bytes() + b'{"epoch":3,"loss":0.25}\n'),
    "no epochs": lambda run: run.epochs.unlink(),
    "damaged epochs": lambda run: run.epochs.write_bytes(b"nonsense\n"),
    "damaged record": lambda run: run.record.write_bytes(b"{"),
    "a folder in its place": lambda run: (run.record.unlink(), run.record.mkdir()),
    "another name": lambda run: run.root.rename(run.root.with_name("another")),
    "gone": lambda run: shutil.rmtree(run.root),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_run_is_read_again(sweep: SweepPaths, change: Callable[[RunPaths], object]) -> None:
    reading = CachedReader(sweep, clock=later)
    before = table(sweep)
    assert reading.read() == read_results(sweep)
    change(first(sweep))
    assert table(sweep) == whole(sweep) != before
    assert reading.read() == read_results(sweep)


def test_cached_reader_reads_settled_runs_once(sweep: SweepPaths, read_again: list[str]) -> None:
    go_on(first(sweep))
    reading = CachedReader(sweep, clock=later)
    reading.read()
    assert len(read_again) == NUM_RUNS
    del read_again[:]
    assert reading.read() == read_results(sweep)
    assert read_again == [first(sweep).name]
    young = CachedReader(sweep, clock=lambda: 0)  # by this clock no file is old
    young.read()
    del read_again[:]
    assert young.read() == read_results(sweep)
    assert len(read_again) == NUM_RUNS


def test_only_settled_runs_are_cached(sweep: SweepPaths, read_again: list[str]) -> None:
    go_on(first(sweep))
    sweep.summaries.unlink()
    read_summary(sweep)  # by this clock every file is young
    assert not sweep.summaries.exists()
    table(sweep)
    del read_again[:]
    table(sweep)
    assert read_again == [first(sweep).name]


def summed(content: bytes) -> bytes:
    """Prepend a valid checksum."""
    return zlib.crc32(content).to_bytes(4, "big") + content


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "torn": lambda data: data[:-7],
    "zeros": lambda data: bytes(len(data)),
    "of other numbers": lambda data: data.replace(b"finished", b"finishes"),
    "no text": lambda data: summed(data[4:].replace(b"finished", b"\xff" * 8)),
    "foreign": lambda _: summed(msgspec.msgpack.encode(["foreign", [1, 2]])),
    "of another version": lambda data: summed(
        data[4:].replace(msgspec.msgpack.decode(data[4:])[0].encode(), b"x" * 64)
    ),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_invalid_cache_is_replaced(sweep: SweepPaths, read_again: list[str], damage: Callable[[bytes], bytes]) -> None:
    good = sweep.summaries.read_bytes()
    sweep.summaries.write_bytes(damage(good))
    assert table(sweep) == whole(sweep)
    assert len(read_again) == NUM_RUNS
    assert sweep.summaries.read_bytes() == good


def test_runs_missing_from_the_plan_keep_their_settings(sweep: SweepPaths, read_again: list[str]) -> None:
    sweep.record.unlink()
    assert table(sweep) == whole(sweep)
    assert len(read_again) == NUM_RUNS  # the cached summaries have no settings
    assert table(sweep) == whole(sweep)
    assert len(read_again) == NUM_RUNS


def test_read_only_folder_is_read_each_time(
    sweep: SweepPaths, read_again: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep.summaries.unlink()

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(keeping, "replace_file", full)
    for _ in range(2):
        assert len(table(sweep).rows) == NUM_RUNS
    assert len(read_again) == 2 * NUM_RUNS


def test_few_runs_are_not_cached(stored: SweepPaths, tmp_path: Path) -> None:
    few = SweepPaths(tmp_path / "few")
    for folder in sorted(stored.runs.iterdir())[:99]:
        shutil.copytree(folder, few.runs / folder.name)
    table(few)
    assert [path.name for path in few.root.iterdir()] == ["runs"]


def log_metrics(sweep: SweepPaths, *, fewer_in_first: bool = False) -> None:
    """Make each run log two metrics and tokens in its last epoch, the first run one metric less if asked."""
    for number, folder in enumerate(sorted(sweep.runs.iterdir())):
        run = RunPaths(folder)
        metrics: dict[str, float | None] = {"val/f1": number / 7, "fid": None if number % 2 else 3.5}
        if fewer_in_first and number == 0:
            del metrics["fid"]
        first, last = read_epochs(run)
        logged = msgspec.structs.replace(last, metrics=metrics, units={"tokens": 1000})
        run.epochs.write_bytes(b"".join(msgspec.json.encode(epoch) + b"\n" for epoch in (first, logged)))


def test_logged_metrics_come_from_the_cache(sweep: SweepPaths, read_again: list[str]) -> None:
    log_metrics(sweep, fewer_in_first=True)
    record = msgspec.structs.replace(read_record(first(sweep)), better={"fid": "max"})
    first(sweep).record.write_bytes(encode_record(record))
    read = table(sweep)
    assert read == whole(sweep)
    assert read.columns[-3:] == ["val/f1", "fid", "tokens_per_second"]
    assert read.directions.known("fid") is True
    del read_again[:]
    assert table(sweep) == read
    assert read_again == []


def test_a_cached_run_that_logs_more_is_read_again(sweep: SweepPaths, read_again: list[str]) -> None:
    log_metrics(sweep)
    table(sweep)
    del read_again[:]
    run = first(sweep)
    run.epochs.write_bytes(run.epochs.read_bytes() + b'{"epoch":3,"metrics":{"psnr":9.0,"val/f1":0.5}}\n')
    read = table(sweep)
    assert read == whole(sweep)
    assert read_again == [run.name]
    (row,) = (row for row in read.rows if row["run_dir"] == f"runs/{run.name}")
    assert (row["psnr"], row["val/f1"], row["fid"]) == (9.0, 0.5, 3.5)


def test_the_cache_has_the_names_of_metrics_once(sweep: SweepPaths) -> None:
    log_metrics(sweep)
    table(sweep)
    content = sweep.summaries.read_bytes()
    assert content.count(b"val/f1") == content.count(b"tokens") == 1


IN_PARTS = """
import os, sys
from pathlib import Path
from runmanager.records.files.paths import SweepPaths
from runmanager.results.load import loader
from runmanager.results.tables.results_table import result_rows

forks, fork = [], os.fork
os.fork = lambda: forks.append(fork()) or forks[-1]
loader.usable_cores = lambda: 3
sweep = SweepPaths(Path(sys.argv[1]))
tables = []
for least in (1000, 20):
    loader._MIN_RUNS = least
    sweep.summaries.unlink(missing_ok=True)
    tables.append(result_rows(*loader.read_summary(sweep)))
if sys.argv[2] == "killed":
    decode, loader._Worker._answer = None, lambda self, into: os._exit(1)
    sweep.summaries.unlink(missing_ok=True)
    tables.append(result_rows(*loader.read_summary(sweep)))
if sys.argv[2] == "refused":
    def refuse():
        raise BlockingIOError(11, "Resource temporarily unavailable")
    os.fork, num_open = refuse, len(os.listdir("/proc/self/fd"))
    sweep.summaries.unlink(missing_ok=True)
    tables.append(result_rows(*loader.read_summary(sweep)))
    assert len(os.listdir("/proc/self/fd")) == num_open
assert all(table == tables[0] for table in tables)
print(len(tables[0].rows), len(tables[0].notes), len(forks), len(tables[0].logged))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only there the threads of a process can be counted")
@pytest.mark.parametrize(("what", "num_forks"), [("whole", 2), ("killed", 4), ("refused", 2)])
def test_a_first_reading_in_several_processes_is_the_same(
    stored: SweepPaths, tmp_path: Path, what: str, num_forks: int
) -> None:
    shutil.copytree(stored.root, tmp_path / "many")
    paths = SweepPaths(tmp_path / "many")
    *_, last = sorted(paths.runs.iterdir())
    RunPaths(last).record.write_text("{")  # is read by another process, and still named
    RunPaths(first(paths).root).epochs.write_bytes(b'{"epoch":1,"metrics":{"f1":0.5}}\n')
    done = subprocess.run([sys.executable, "-c", IN_PARTS, str(paths.root), what], capture_output=True, text=True)
    assert done.stdout.split() == [str(NUM_RUNS - 1), "1", str(num_forks), "1"], done.stderr
