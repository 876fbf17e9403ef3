"""What meters say of a run: its columns, where they are empty, and the words on a clock that changed."""

import csv
import dataclasses
import io

import msgspec
import pytest

from runmanager.records.run.run_record import DeviceReadings, Turn
from runmanager.results.compare.comparison import compare
from runmanager.results.compare.comparison_table import CompareOptions
from runmanager.results.load.loader import read_results
from runmanager.results.load.run_summary import clock_changes
from runmanager.results.report.run_details import run_headline, run_sections
from runmanager.results.result_files import write_tables
from runmanager.results.table_model.formatting import format_sections
from runmanager.results.tables.results_table import result_rows
from runmanager.results.tables.text_formats import to_csv

NAMES = ("energy_joules", "samples_per_joule", "average_power_watts", "gpu_utilization", "throttled_share")
SECONDS = [9.0, 2.0, 2.0, 2.0]
READ = DeviceReadings(
    joules=250.0,
    seconds=2.5,
    counter_steps=25.0,
    utilization=0.75,
    clock_hertz=1.98e9,
    throttled_share=0.0,
    others_share=0.0,
)


@pytest.fixture
def read(timed):
    """A function that makes a warm-up epoch and three measured ones with these changed readings."""

    def make(*changes):
        each = [*changes, *[{}] * (3 - len(changes))]
        of_epochs = [{"joules": 9e9}, *each]
        return [
            msgspec.structs.replace(epoch, readings=msgspec.structs.replace(READ, **changed))
            for epoch, changed in zip(timed(SECONDS), of_epochs, strict=True)
        ]

    return make


def columns(contents, epochs, **fields):
    (row,) = result_rows(contents(({"lr": 1}, epochs, fields)), None).rows
    return tuple(row[name] for name in NAMES)


def test_columns_follow_the_last_one_where_any_run_has_them(sweep, read, timed):
    sweep.run({"lr": 1}, read())
    sweep.run({"lr": 2}, timed(SECONDS))
    rows = list(csv.DictReader(io.StringIO(to_csv(result_rows(*read_results(sweep.paths))))))
    names = list(rows[0])
    assert names[names.index("overall_samples_per_second") + 1 :] == list(NAMES)
    assert [row["energy_joules"] for row in sorted(rows, key=lambda row: row["lr"])] == ["750.0", ""]


def test_a_table_has_only_the_columns_that_a_run_has(contents, timed):
    table = result_rows(contents(({"lr": 1}, timed(SECONDS), {})), None)
    assert not set(NAMES) & set(table.columns)
    of_host = [DeviceReadings(joules=5.0, seconds=2.5, counter_steps=2500.0)] * 4
    epochs = [
        msgspec.structs.replace(epoch, readings=each) for epoch, each in zip(timed(SECONDS), of_host, strict=True)
    ]
    assert result_rows(contents(({"lr": 1}, epochs, {})), None).columns[-3:] == list(NAMES[:3])


def test_energy_is_summed_over_measured_epochs(contents, read):
    assert columns(contents, read()) == (750.0, 4.0, 100.0, 0.75, 0.0)


def test_energy_of_epochs_shorter_than_a_step_is_that_of_their_sum(contents, read):
    short = {"counter_steps": 5.0, "seconds": 0.5}
    steps = columns(contents, read({"joules": 0.0, **short}, {"joules": 0.0, **short}, {"joules": 300.0, **short}))
    assert steps[:3] == (300.0, 10.0, 200.0)


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ([{"counter_steps": 3.3}] * 3, {}),  # below ten steps
        ([{"joules": None}], {}),  # one epoch of a device that others used
        ([{"joules": 0.0}] * 3, {}),  # a counter that stands still
        ([{}], {"world_size": 2}),
    ],
)
def test_energy_that_the_counter_cannot_tell_is_empty(contents, read, changes, fields):
    assert columns(contents, read(*changes), **fields)[:3] == (None, None, None)


def test_a_shared_device_has_no_utilization(contents, read):
    assert columns(contents, read({"others_share": 0.5, "joules": None})) == (None,) * 5


def test_samples_per_joule_need_the_number_of_samples(contents, read):
    epochs = read()
    epochs[2] = msgspec.structs.replace(epochs[2], samples=0)
    assert columns(contents, epochs)[:3] == (750.0, None, 100.0)


THROTTLED = "device was throttled in 17% of the readings"
CHANGED = "device's clock changed from 1,200 to 1,980 MHz"


def test_a_throttled_device_and_a_changing_clock_are_named_everywhere(sweep, read):
    name = sweep.run({"lr": 1}, read({"throttled_share": 0.5}, {"clock_hertz": 1.2e9}))
    sweep.run({"lr": 2}, read({"clock_hertz": 1.85e9}))
    write_tables(sweep.paths)
    stored, plan = read_results(sweep.paths)
    notes = result_rows(stored, plan).notes
    assert notes == (f"{name}: its {THROTTLED}.", f"{name}: its {CHANGED}.")
    for path in (sweep.paths.results("md"), sweep.paths.report):
        assert THROTTLED in path.read_text()
    (row,) = compare(stored, plan, CompareOptions(axis="lr")).rows
    for words in ("was throttled in up to 17% of its readings", "changed its clock by up to 65%"):
        assert f"lr=1: the device {words}" in row["reason"] and f"lr=2: the device {words}" not in row["reason"]


def test_of_runs_that_took_turns_the_clock_of_the_turns_counts(contents, read):
    turns = [
        Turn("a", number, 1, 10, 1000, 1.0, number == 1, hertz) for number, hertz in enumerate((3e8, 1.9e9, 1.5e9), 1)
    ]
    stored = contents(({"lr": 1}, read({"clock_hertz": 1e9}), {}))
    (run,) = stored.runs
    (line,) = clock_changes(dataclasses.replace(run, turns=turns), run.epochs[1:]).lines()
    assert line == "its device's clock changed from 1,500 to 1,900 MHz"


def test_the_details_of_a_run_have_its_readings_and_its_clock(sweep, read):
    sweep.run({"lr": 1}, read({"throttled_share": 0.5}, {"clock_hertz": 1.2e9}))
    (run,) = read_results(sweep.paths)[0].runs
    text = format_sections(run_headline(run), run_sections(run, shows_all=True))
    assert f"  its {THROTTLED}\n" in text and f"  its {CHANGED}\n" in text
    for line in ("energy_joules        750.0", "average_power_watts  100.0", "throttled_share      16.7%"):
        assert line in text
