"""The files of sweeps and runs as targets: each is replaced by the input, and the sweep is read as commands do."""

import datetime
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.stored_sweep import write_stored_sweep
from runmanager.app.display.running_run import RunningRun
from runmanager.app.follow.sweep_feed import SweepFeed
from runmanager.app.follow.sweep_state import SweepReader
from runmanager.launching.job_registry import jobs_folder, read_job_registry
from runmanager.records.files.paths import RunPaths, SweepPaths
from runmanager.records.host.gpus import DevicePeaks, find_device_peaks
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.heartbeat import Beat, HeartbeatObserver, describe_last_heartbeat, read_beat, write_beat
from runmanager.records.run.program_report import ProgramReport
from runmanager.records.run.run_record import Attempt, Environment, EpochRecord, Measurements, Turn
from runmanager.records.run.status import Outcome, Status
from runmanager.records.storage.labels import Labels, SweepLabels
from runmanager.records.storage.reader import read_last_sign_of_life, read_record
from runmanager.records.storage.run_folder import claim_attempt, release_claim
from runmanager.records.storage.versioned_file import encode_record
from runmanager.records.sweep.lookup import Messages
from runmanager.results.findings.answer_sentences import answers
from runmanager.results.findings.roofline import roofline_rows
from runmanager.results.load.loader import read_results, read_summary
from runmanager.results.load.summary_cache import SummaryMemory, read_cache
from runmanager.results.report.page_data import encode_page_data, page_data
from runmanager.results.report.report import render_report
from runmanager.results.report.run_details import run_sections
from runmanager.results.sweep_snapshot import SweepSnapshot
from runmanager.results.tables.results_table import result_rows
from runmanager.results.tables.sweep_listing import list_sweep, listing
from runmanager.results.tables.terminal import render_results
from runmanager.results.tables.text_formats import iter_json, to_csv, to_markdown

from .target import Read, Target

__all__ = ["TARGETS"]

_NOW = datetime.datetime(2026, 12, 1, tzinfo=datetime.UTC)
_FAR = ProcessIdentity(pid=2**22 + 1, start_ticks=1, boot_id="another", host="elsewhere")


def _sweep(folder: Path) -> SweepPaths:
    """Two settings on two devices, so that there is something to compare, and one run that another host makes."""
    paths = write_stored_sweep(folder / "sweep", num_runs=4, num_epochs=3, num_metrics=1)
    running = msgspec.structs.replace(
        read_record(_last(paths)), status=Status.RUNNING, owner=_FAR, ended_at=None, run_seconds=None
    )
    _last(paths).record.write_bytes(encode_record(running))
    write_beat(_last(paths).heartbeat, Beat(1, 2, 3))
    return paths


def _first(paths: SweepPaths) -> RunPaths:
    return RunPaths(min(paths.runs.iterdir()))


def _last(paths: SweepPaths) -> RunPaths:
    return RunPaths(max(paths.runs.iterdir()))


def _read_sweep(paths: SweepPaths) -> None:
    """Do what `table`, `show`, `ls`, `watch` and the report's data do."""
    summary, plan = read_summary(paths)
    table = result_rows(summary, plan)
    for text in (to_csv(table), to_markdown(table), *iter_json(table)):
        text.encode()
    render_results(table, limit=10, width=100)
    listing([list_sweep(paths, paths.root.parent, now_ns=time.time_ns(), summaries=SummaryMemory(), sizes={})])
    feed = SweepFeed(SweepReader(paths, observer=_observer()))
    feed.first_look(since=0.0)
    feed.state.in_words()
    snapshot = SweepSnapshot.read(paths)
    to_csv(snapshot.epochs).encode()
    to_csv(snapshot.comparison).encode()
    answers(snapshot.results, snapshot.comparison, runs=snapshot.sweep.runs)
    roofline_rows(snapshot.sweep, snapshot.plan)
    encode_page_data(page_data(snapshot)).encode()
    for run in snapshot.sweep.runs:
        run_sections(run, shows_all=True)
        read_last_sign_of_life(run.paths, run.record)
        if run.record.status is Status.RUNNING:
            RunningRun(run.name, run.paths, planned=9).as_read().with_share().row(time.time())


def _observer() -> HeartbeatObserver:
    return HeartbeatObserver(clock=lambda: 0.0, wait=lambda _: None)


def _file_of_sweep(find: Callable[[SweepPaths], Path]) -> Callable[[Path], Read]:
    """The reader of a sweep in which one file is the input."""

    def prepare(folder: Path) -> Read:
        paths = _sweep(folder)
        file = find(paths)
        file.parent.mkdir(exist_ok=True)

        def read(data: bytes) -> None:
            file.write_bytes(data)
            _read_sweep(paths)

        return read

    return prepare


def _content(find: Callable[[SweepPaths], Path]) -> Callable[[Path], Sequence[bytes]]:
    return lambda folder: [find(_sweep(folder)).read_bytes()]


def _records(folder: Path) -> list[bytes]:
    """The record as the sweep has it, and one in which every field is set."""
    stored = read_record(_first(_sweep(folder)))
    attempt = Attempt(
        started_at="2026-01-01T00:00:00+00:00",
        ended_at="2026-01-01T00:01:00+00:00",
        last_epoch=1,
        environment=Environment(host="before", device_name="another"),
        session="s",
    )
    full = msgspec.structs.replace(
        stored,
        attempt=3,
        resumed_at="2026-01-01T00:02:00+00:00",
        owner=_FAR,
        earlier=(attempt, msgspec.structs.replace(attempt, run="shorter", session=None)),
        measurements=_measurements(),
        session="s",
        unsigned=("name",),
        notes=("a note",),
        deviations=("a deviation",),
        better={"val/metric_0": "max"},
        interval="steps",
        summary={"val/metric_0": 0.5, "fid": None},
        origins={"fid": "printed"},
        continued_from="shorter",
        world_size=2,
        num_records=2,
        cell_command=("python", "train.py"),
        variables={"HOME": "/"},
    )
    adopted = msgspec.structs.replace(stored, adopted="/elsewhere", summary={"fid": 1.0}, origins={"fid": "event file"})
    running = msgspec.structs.replace(full, status=Status.RUNNING)
    return [encode_record(each) for each in (stored, full, adopted, running)]


def _measurements() -> Measurements:
    peaks = DevicePeaks(device_name="a processor", threads=2, flops_per_second={"fp32": 1e12}, dispatch_seconds=1e-6)
    peaks = msgspec.structs.replace(peaks, copy_bytes_per_second=1e10, transfer_bytes_per_second=1e9)
    return Measurements(
        first_batch_seconds=0.1,
        steps_per_epoch=600,
        compile_seconds=1.0,
        precision="fp32",
        chosen={"micro_batch": None},
        flop_per_step=10**9,
        operations_per_step=100,
        bytes_per_step=10**9,
        step_units={"samples": 100.0},
        peak_host_bytes=10**9,
        ceilings=peaks,
    )


def _epochs(folder: Path) -> list[bytes]:
    lines = _first(_sweep(folder)).epochs.read_bytes()
    logged = EpochRecord(0, loss=1.0, metrics={"val/metric_0": None, "f1": 0.5}, units={"tokens": 7})
    return [lines, msgspec.json.encode(logged) + b"\n" + lines]


def _in_turns(folder: Path) -> Read:
    """Turns count where their runs took some together: here all four."""
    paths = _sweep(folder)
    for name in sorted(each.name for each in paths.runs.iterdir()):
        run = paths.run(name)
        run.record.write_bytes(encode_record(msgspec.structs.replace(read_record(run), session="s")))
        run.turns.write_bytes(_turns(folder)[0])

    def read(data: bytes) -> None:
        _first(paths).turns.write_bytes(data)
        _read_sweep(paths)

    return read


def _turns(folder: Path) -> list[bytes]:
    turns = [Turn("s", number, 1, 10, 1000, 0.5 + number / 10, warmup=number == 1) for number in range(1, 9)]
    return [b"".join(msgspec.json.encode(each) + b"\n" for each in turns)]


def _reports(folder: Path) -> list[bytes]:
    report = ProgramReport(
        outcome=Outcome(Status.FINISHED, None, "done"),
        num_parameters=7,
        epochs_planned=9,
        interval="steps",
        peak_memory_bytes=10**9,
        run_seconds=1.5,
        environment=Environment(host="here", libraries={"torch": "2.9"}, code={"a.py": "0"}, command=("a",)),
        measurements=_measurements(),
        notes=("a note",),
        deviations=("a deviation",),
        better={"fid": "min"},
        summary={"fid": 3.5, "worst": None},
        world_size=2,
        num_records=2,
    )
    return [encode_record(report)]


def _labels(folder: Path) -> list[bytes]:
    run = _first(_sweep(folder)).name
    return [encode_record(SweepLabels(tags=("good",), note="a note", runs={run: Labels(("best",), "look")}))]


def _messages(folder: Path) -> list[bytes]:
    paths = _sweep(folder)
    Messages(paths).say("the disk is full")
    Messages(paths).say("a  killed; retried (2 of 2)", retried=_first(paths).name)
    return [paths.messages.read_bytes()]


def _claimed(folder: Path) -> Read:
    run = _last(_sweep(folder))

    def read(data: bytes) -> None:
        claim = run.claim(2)
        claim.mkdir(exist_ok=True)
        (claim / "owner.json").write_bytes(data)
        release_claim(claim_attempt(run, 2, ProcessIdentity.current(), is_abandoned=lambda _: True))

    return read


def _heartbeat(folder: Path) -> Read:
    run = _last(paths := _sweep(folder))

    def read(data: bytes) -> None:
        run.heartbeat.write_bytes(data)
        describe_last_heartbeat(read_beat(run.heartbeat))
        _read_sweep(paths)

    return read


def _cache(folder: Path, file: Callable[[SweepPaths], Path]) -> tuple[SweepPaths, bytes]:
    """A sweep of ended runs, and the cache that a reader has made of them."""
    paths = write_stored_sweep(folder / "cached", num_runs=2, num_epochs=2, num_metrics=1)
    later = time.time_ns() + 60 * 10**9
    read_summary(paths, clock=lambda: later, is_one_of_many=True)
    list_sweep(paths, folder, now_ns=later)
    return paths, file(paths).read_bytes()


def _summaries(folder: Path) -> Read:
    """The first byte decides: the file, or its content, which gets a valid checksum; another one is ignored at once."""
    paths, _ = _cache(folder, lambda sweep: sweep.summaries)

    def read(data: bytes) -> None:
        if data[:1] == b"\1":
            paths.summaries.write_bytes(zlib.crc32(data[1:]).to_bytes(4, "big") + data[1:])
            read_cache(paths)
        else:
            paths.summaries.write_bytes(data[1:])
            to_csv(result_rows(*read_summary(paths)))

    return read


def _cached_summaries(folder: Path) -> list[bytes]:
    content = _cache(folder, lambda sweep: sweep.summaries)[1]
    return [b"\0" + content, b"\1" + content[4:], b"\1\xdd\xff\xff\xff\xff"]


def _sizes(folder: Path) -> Read:
    paths, _ = _cache(folder, lambda sweep: sweep.sizes)

    def read(data: bytes) -> None:
        paths.sizes.write_bytes(data)
        to_csv(listing([list_sweep(paths, folder, now_ns=time.time_ns())]))

    return read


def _jobs(folder: Path) -> Read:
    paths = SweepPaths(folder)
    jobs_folder(paths).mkdir()

    def read(data: bytes) -> None:
        (jobs_folder(paths) / "jobs.json").write_bytes(data)
        read_job_registry(paths)

    return read


def _peaks(folder: Path) -> Read:
    def read(data: bytes) -> None:
        (folder / "ceilings.json").write_bytes(data)
        find_device_peaks(folder / "ceilings.json", device_name="a processor", threads=2, torch="2.9")

    return read


def _drawn(folder: Path) -> Read:
    """Epochs as the curves of a report; few fit into the time."""
    paths = _sweep(folder)

    def read(data: bytes) -> None:
        _first(paths).epochs.write_bytes(data)
        render_report(SweepSnapshot(*read_results(paths)), now=_NOW).encode()

    return read


def _record_of(sweep: SweepPaths) -> Path:
    return _first(sweep).record


TARGETS = {
    "run_record": Target("run.json", _file_of_sweep(_record_of), _records, is_json=True, share=3),
    "epochs": Target(
        "epochs.jsonl", _file_of_sweep(lambda sweep: _first(sweep).epochs), _epochs, is_json=True, share=2
    ),
    "report": Target("epochs.jsonl, drawn in a report", _drawn, _epochs, is_json=True),
    "turns": Target("turns.jsonl", _in_turns, _turns, is_json=True),
    "reported": Target("reported.json", _file_of_sweep(lambda sweep: _last(sweep).reported), _reports, is_json=True),
    "sweep_record": Target(
        "sweep.json",
        _file_of_sweep(lambda sweep: sweep.record),
        _content(lambda sweep: sweep.record),
        is_json=True,
        share=2,
    ),
    "labels": Target("labels.json", _file_of_sweep(lambda sweep: sweep.labels), _labels, is_json=True, share=0.5),
    "messages": Target(
        "messages.jsonl", _file_of_sweep(lambda sweep: sweep.messages), _messages, is_json=True, share=0.5
    ),
    "heartbeat": Target(
        "heartbeat", _heartbeat, lambda folder: [b" ".join([digit * 20] * 3) for digit in (b"0", b"9")], share=0.5
    ),
    "claim": Target(
        "the owner of a claim",
        _claimed,
        lambda folder: [msgspec.json.encode(_FAR), msgspec.json.encode(ProcessIdentity.current())],
        is_json=True,
        share=0.5,
    ),
    "summaries": Target("the cache of summaries", _summaries, _cached_summaries),
    "sizes": Target(
        "the cache of sizes",
        _sizes,
        lambda folder: [_cache(folder, lambda sweep: sweep.sizes)[1], b"\xdf\xff\xff\xff\xff"],
        share=0.5,
    ),
    "slurm_jobs": Target("the jobs of Slurm", _jobs, lambda folder: [b'{"a": "17"}'], is_json=True, share=0.3),
    "device_peaks": Target(
        "the peaks of devices",
        _peaks,
        lambda folder: [msgspec.json.encode([_measurements().ceilings])],
        is_json=True,
        share=0.3,
    ),
}
