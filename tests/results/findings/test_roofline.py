"""Rooflines: rates from counted work and throughput, and shares of the device's ceilings."""

import dataclasses
import datetime
import io

import msgspec
import pytest
from rich.console import Console

from runmanager.records.host.gpus import DevicePeaks
from runmanager.records.run.run_record import UNKNOWN_WORK, Measurements, Turn
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.compare.matched_pairs import match_sides
from runmanager.results.findings.roofline import full_batches, roofline_lines, roofline_rows, work_of
from runmanager.results.report.report import render_report
from runmanager.results.report.run_details import run_sections
from runmanager.results.sweep_snapshot import SweepSnapshot
from runmanager.results.table_model.formatting import format_sections
from runmanager.results.tables.terminal import render_results
from runmanager.results.tables.text_formats import to_markdown

CONFIG = {"batch_size": 100, "device": "cpu"}
BEST = DevicePeaks(
    device_name="Zen 4",
    threads=2,
    flops_per_second={"fp32": 4e10},
    copy_bytes_per_second=1e11,
    dispatch_seconds=1e-5,
)
# Ten full steps of 100 samples an epoch of a second.
FACTS = Measurements(
    steps_per_epoch=10,
    precision="fp32",
    flop_per_step=10**9,
    operations_per_step=100,
    bytes_per_step=5 * 10**9,
    ceilings=BEST,
)


@pytest.fixture
def sweep(contents, timed):
    """Runs on cpu and cuda in memory, each with these facts and seconds an epoch."""

    def make(*facts, seconds=(1.0, 0.5)):
        devices = zip(("cpu", "cuda"), facts, seconds, strict=False)
        return contents(
            *((CONFIG | {"device": name}, timed([9.0] + [s] * 5), {"measurements": each}) for name, each, s in devices)
        )

    return make


def rates(run):
    return {kind: (work.per_second, work.share) for kind, work in work_of(run).items()}


def test_rates_of_full_batches_and_shares_of_the_ceilings(sweep):
    assert rates(sweep(FACTS).runs[0]) == {
        "compute": (pytest.approx(1e10), pytest.approx(0.25)),
        "memory": (pytest.approx(5e10), pytest.approx(0.5)),
        "launch": (pytest.approx(1000), pytest.approx(0.01)),
    }


def test_rates_follow_the_unit_that_the_work_depends_on(sweep):
    run = sweep(FACTS, FACTS).runs[0]
    epochs = [msgspec.structs.replace(each, units={"tokens": 4 * each.samples}) for each in run.epochs]

    def with_units(**units):
        record = msgspec.structs.replace(
            run.record, measurements=msgspec.structs.replace(FACTS, step_units=units, steps_per_epoch=40)
        )
        return dataclasses.replace(run, record=record, epochs=epochs)

    # A thousand samples and four thousand tokens a second; the setting `batch_size` does not count.
    assert rates(with_units(samples=50.0))["compute"] == (pytest.approx(2e10), pytest.approx(0.5))
    assert rates(with_units(tokens=1000.0))["compute"] == (pytest.approx(4e9), pytest.approx(0.1))
    assert full_batches(with_units(tokens=1000.0)) == 4 and full_batches(with_units(samples=50.0)) == 20
    details = format_sections("", run_sections(with_units(samples=50.0), shows_all=True))
    assert "flop_per_second  20 GFLOP/s" in details.replace("   ", "")
    assert "50.0% of 40 GFLOP/s in fp32" in details and "step_units" in details


def test_rates_are_those_of_turns_where_a_run_took_any(sweep):
    run = sweep(FACTS).runs[0]
    in_turns = dataclasses.replace(run, turns=[Turn("a", 1, 1, 10, 1000, 0.25)])
    assert rates(in_turns)["compute"] == (pytest.approx(4e10), pytest.approx(1.0))


@pytest.mark.parametrize(
    "changes",
    [
        {"ceilings": None},
        {"ceilings": msgspec.structs.replace(BEST, threads=1)},
        {"ceilings": msgspec.structs.replace(BEST, device_name="Zen 5")},
        {"precision": "bf16"},
    ],
)
def test_run_without_ceilings_has_a_rate_but_no_share(sweep, changes):
    run = sweep(msgspec.structs.replace(FACTS, **changes)).runs[0]
    assert rates(run)["compute"] == (pytest.approx(1e10), None)


def test_uncounted_work_and_the_memory_of_small_operations_are_left_out(sweep):
    run = sweep(msgspec.structs.replace(FACTS, flop_per_step=None, bytes_per_step=10**8)).runs[0]
    assert rates(run) == {
        "memory": (pytest.approx(1e9), None),
        "launch": (pytest.approx(1000), pytest.approx(0.01)),
    }
    assert work_of(sweep(Measurements()).runs[0]) == {}


def test_each_side_whose_device_was_measured_has_a_line(sweep):
    both = sweep(FACTS, msgspec.structs.replace(FACTS, ceilings=None))
    assert roofline_lines(match_sides(both, None, CompareOptions())) == [
        "cpu does 10 GFLOP/s, 25% of the 40 GFLOP/s that its matrix products reach at best (fp32).",
    ]
    assert roofline_lines(match_sides(both, None, CompareOptions(metric="val_accuracy"))) == []
    assert roofline_lines(match_sides(sweep(Measurements(), Measurements()), None, CompareOptions())) == []


def test_runs_of_one_side_share_a_line_and_a_unit(contents, timed):
    runs = [
        (CONFIG | {"device": device, "seed": seed}, timed([9.0] + [seconds] * 5), {"measurements": FACTS})
        for device, times in (("cpu", (1.0, 1.25)), ("cuda", (1.0, 0.001)))
        for seed, seconds in enumerate(times)
    ]
    best = "of the 40 GFLOP/s that its matrix products reach at best (fp32)."
    assert roofline_lines(match_sides(contents(*runs), None, CompareOptions())) == [
        f"cpu does 8 to 10 GFLOP/s, 20 to 25% {best}",
        f"cuda does 10 G to 10 TFLOP/s, 25 to 25,000% {best}",
    ]


def page_of(stored):
    return render_report(SweepSnapshot(stored, None), now=datetime.datetime.now(datetime.UTC))


def test_table_has_a_row_a_run_the_fastest_first(sweep):
    stored = sweep(FACTS, FACTS)
    table = roofline_rows(stored, None)
    assert [row["device"] for row in table.rows] == ["cuda", "cpu"]
    assert table.rows[1]["flop_per_second"] == pytest.approx(1e10)
    assert "| cpu | 1 G | 10 G | 25% | 50 G | 50% | 100 | 1 k | 1% | fp32 |" in to_markdown(table)
    console = Console(width=80, file=io.StringIO(), color_system=None)
    console.print(render_results(table))
    assert max(map(len, console.file.getvalue().splitlines())) <= 80
    assert "10 G" in console.file.getvalue() and "25%" in console.file.getvalue()
    page = page_of(stored)
    assert "What these runs achieve" in page and "of what the device was measured to do at best" in page


def test_runs_whose_work_was_not_counted_have_no_rows(sweep):
    stored = sweep(Measurements())
    table = roofline_rows(stored, None)
    assert table.rows == []
    page = page_of(stored)
    assert "What these runs achieve" not in page


def test_note_counts_runs_whose_work_is_not_known(sweep):
    none = Measurements()
    (note,) = roofline_rows(sweep(none, none), None).notes
    assert note.startswith("Of 2 of 2 runs the work of a step is not known: it is counted on a first batch")
    partly = sweep(FACTS, none)
    text = f"{UNKNOWN_WORK}: the loader does not show what a full batch is"
    record = msgspec.structs.replace(partly.runs[1].record, notes=("graph: none", text))
    partly = dataclasses.replace(partly, runs=[partly.runs[0], dataclasses.replace(partly.runs[1], record=record)])
    table = roofline_rows(partly, None)
    assert len(table.rows) == 1 and table.notes == (f"Of 1 of 2 runs {text}.",)
    assert roofline_rows(sweep(FACTS, FACTS), None).notes == ()
