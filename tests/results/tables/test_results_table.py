"""The exact contents of the results and epochs tables."""

import msgspec
import pytest

from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.heartbeat import Beat, write_beat
from runmanager.records.run.run_record import Attempt, Environment, EpochRecord
from runmanager.records.run.status import Reason, Status
from runmanager.results.load.loader import read_results
from runmanager.results.tables.results_table import epoch_rows, result_rows
from runmanager.results.tables.text_formats import to_csv

HEADER = (
    "run,status,reason,lr,batch_size,num_workers,device,epochs,loss,accuracy,val_loss,val_accuracy,epoch_seconds,"
    "epoch_seconds_iqr,wall_seconds,run_seconds,samples_per_second,data_seconds,transfer_seconds,compute_seconds,"
    "eval_seconds,tracking_seconds,peak_memory_bytes,num_parameters,device_name,contended,started_at,run_dir,"
    "overall_samples_per_second"
)
CONFIG = {"lr": 0.01, "batch_size": 100, "num_workers": 0, "device": "cpu"}


def csv_lines(sweep):
    return to_csv(result_rows(*read_results(sweep.paths))).splitlines()


def rows(sweep):
    return result_rows(*read_results(sweep.paths)).rows


def test_results_csv_is_written_exactly_as_documented(sweep, timed):
    phases = {"data_seconds": 0.25, "transfer_seconds": 0.125, "compute_seconds": 1.5, "tracking_seconds": 0.01}
    epochs = timed([9.0, 2.0, 4.0, 3.0, 1.0], samples=6, **phases)
    sweep.run(CONFIG, epochs, name="a", num_parameters=32998, peak_memory_bytes=1024)
    header, line = csv_lines(sweep)
    assert header == HEADER
    # The measured epochs take 2, 4, 3 and 1 seconds: median 2.5, quartiles 1.75 and 3.25; throughputs 3, 1.5, 2 and 6.
    assert line == (
        "a,finished,,0.01,100,0,cpu,5,0.2,0.9,0.3,0.85,2.5,1.5,3.0,30.0,2.5,0.25,0.125,1.5,,0.01,1024,32998,Zen 4,"
        "False,2026-11-21T12:00:00+00:00,runs/a,2.4"
    )


def test_missing_values_of_skipped_and_pending_cells_are_empty(sweep):
    cuda, later = CONFIG | {"device": "cuda"}, CONFIG | {"batch_size": 200}
    sweep.plan(cuda, later)
    missing = {"run_seconds": None, "environment": Environment(host="anvil")}
    sweep.run(cuda, [], name="s", status=Status.SKIPPED, reason=Reason.DEVICE_UNAVAILABLE, **missing)
    _, skipped, pending = csv_lines(sweep)
    assert skipped == (
        "s,skipped,device_unavailable,0.01,100,0,cuda,0" + "," * 18 + ",2026-11-21T12:00:00+00:00,runs/s,"
    )
    name = rows(sweep)[1]["run"]
    assert pending == f'"{name}",pending,,0.01,200,0,cpu' + "," * 22


def test_other_settings_that_differ_have_columns_with_dotted_names(sweep):
    sweep.run(CONFIG | {"seed": 1, "model": {"name": "mlp", "hidden": [32, 16]}, "amp": True, "same": 3}, name="a")
    sweep.run(CONFIG | {"seed": 2, "model": {"name": "cnn"}, "amp": False, "same": 3}, name="b")
    header, first, second = csv_lines(sweep)
    assert header == HEADER.replace("device,epochs", "device,seed,model.name,model.hidden,amp,epochs", 1)
    assert ',cpu,1,mlp,"[32, 16]",True,7,' in first
    assert ",cpu,2,cnn,,False,7," in second


def test_settings_that_follow_from_the_choice_of_a_group_are_not_shown(sweep):
    for number, (name, own) in enumerate({"adam": {"eps": 1e-8}, "sgd": {"momentum": 0.9}}.items()):
        chosen = {"name": name, "_target_": f"torch.optim.{name}", **own}
        sweep.run(CONFIG | {"optimizer": chosen | {"decay": 0.1}}, name=f"a{number}")
        sweep.run(CONFIG | {"optimizer": chosen | {"decay": 0.2}}, name=f"b{number}")
    table = result_rows(*read_results(sweep.paths))
    assert {"optimizer.eps", "optimizer.momentum", "optimizer._target_"} < set(table.columns)  # a file has them all
    assert [name for name in table.shown if name in table.settings] == ["optimizer.name", "optimizer.decay"]


def test_a_setting_named_like_a_measured_column_is_prefixed(sweep):
    sweep.run(CONFIG | {"epochs": 9}, name="a")
    sweep.run(CONFIG | {"epochs": 7}, name="b")
    assert [(row["settings.epochs"], row["epochs"]) for row in rows(sweep)] == [(9, 7), (7, 7)]


def test_the_plan_does_not_change_settings(sweep):
    configs = [CONFIG | {"lr": lr, "model": {"name": "mlp", "width": width}} for lr in (0.1, 0.2) for width in (1, 2)]
    for config in configs:
        sweep.run(config)
    without = result_rows(*read_results(sweep.paths))
    sweep.plan(*configs)
    assert result_rows(*read_results(sweep.paths)) == without


def test_a_run_outside_the_plan_keeps_its_settings(sweep):
    sweep.plan(CONFIG | {"seed": 1}, CONFIG | {"seed": 2})
    sweep.run(CONFIG | {"seed": 1})
    sweep.run(CONFIG | {"seed": 1, "lr": 0.5})
    assert [(row["lr"], row["seed"], row["status"]) for row in rows(sweep)] == [
        (0.01, 1, "finished"),
        (0.5, 1, "finished"),
        (0.01, 2, "pending"),
    ]


def test_rows_are_sorted_by_speed_with_unmeasured_runs_last_in_order_of_start(sweep, timed):
    for name, epochs in {"c": [], "slow": timed([1.0, 5.0]), "b": [], "fast": timed([9.0, 2.0]), "a": []}.items():
        sweep.run({"lr": name}, epochs, name=name)
    assert [row["run"] for row in rows(sweep)] == ["fast", "slow", "c", "b", "a"]


def test_medians_exclude_warmup_and_the_epoch_before_training(sweep, timed):
    before = EpochRecord(epoch=0, val_loss=2.3, val_accuracy=0.1, wall_seconds=50.0, warmup=True)
    sweep.run(CONFIG, [before, *timed([8.0, 9.0, 1.0], num_warmup=2)])
    (row,) = rows(sweep)
    assert (row["epochs"], row["epoch_seconds"], row["wall_seconds"]) == (3, 1.0, 1.5)


@pytest.mark.parametrize(("seconds", "words"), [([9.0], "The only epoch was warm-up"), ([9.0, 8.0], "Every epoch was")])
def test_a_run_of_warmup_epochs_only_has_no_times_and_a_note(sweep, timed, seconds, words):
    name = sweep.run(CONFIG, timed(seconds, num_warmup=2), name="short")
    table = result_rows(*read_results(sweep.paths))
    assert table.rows[0]["epochs"] == len(seconds)
    assert table.rows[0]["loss"] is not None
    assert {table.rows[0][column] for column in ("epoch_seconds", "samples_per_second", "wall_seconds")} == {None}
    (note,) = table.notes
    assert note.startswith(words)
    assert name in note


def test_a_killed_run_shows_how_far_it_got(sweep, timed):
    sweep.run(CONFIG, timed([3.0, 2.0]), status=Status.KILLED, reason=Reason.TIMEOUT, run_seconds=None)
    (row,) = rows(sweep)
    assert (row["status"], row["reason"], row["epochs"], row["run_seconds"]) == ("killed", "timeout", 2, 5.0)


def test_settings_without_a_device_mean_cpu(sweep):
    sweep.run({"lr": 1.0})
    assert rows(sweep)[0]["device"] == "cpu"
    assert rows(sweep)[0]["batch_size"] is None


def test_a_damaged_run_is_noted_and_is_not_pending(sweep):
    other = CONFIG | {"lr": 0.5}
    sweep.plan(CONFIG, other)
    planned = {row["lr"]: row["run"] for row in rows(sweep)}
    sweep.run(CONFIG, name=planned[0.01])
    sweep.run(other, name=planned[0.5])
    sweep.paths.run(planned[0.5]).record.write_text("{")
    table = result_rows(*read_results(sweep.paths))
    assert [row["run"] for row in table.rows] == [planned[0.01]]
    assert planned[0.5] in table.notes[0]
    assert "damaged" in table.notes[0]


def test_a_damaged_plan_is_noted_and_does_not_drop_runs(sweep):
    sweep.run(CONFIG)
    sweep.paths.record.write_text("nonsense")
    table = result_rows(*read_results(sweep.paths))
    assert len(table.rows) == 1
    assert "sweep.json is damaged" in table.notes[0]


def test_epochs_csv_has_one_row_per_epoch_in_order_of_start(sweep, timed):
    sweep.run(CONFIG | {"lr": 0.5}, timed([3.0, 2.0], data_seconds=0.5), name="b")
    sweep.run(CONFIG, [EpochRecord(epoch=0, val_loss=2.0, warmup=True)], name="a")
    assert to_csv(epoch_rows(*read_results(sweep.paths))) == (
        "run,epoch,loss,accuracy,val_loss,val_accuracy,epoch_seconds,wall_seconds,run_seconds,samples,warmup,"
        "data_seconds,transfer_seconds,compute_seconds,eval_seconds,tracking_seconds,"
        "lr,batch_size,num_workers,device\n"
        "b,1,1.0,0.5,1.5,0.25,3.0,3.5,3.0,1000,True,0.5,,,,,0.5,100,0,cpu\n"
        "b,2,0.5,0.75,0.75,0.625,2.0,2.5,5.0,1000,False,0.5,,,,,0.5,100,0,cpu\n"
        "a,0,,,2.0,,,,,0,True,,,,,,0.01,100,0,cpu\n"
    )


def test_an_empty_sweep_has_a_header(sweep):
    assert csv_lines(sweep) == [HEADER]


def test_contention_is_noted_below_the_table(contents, timed):
    loaded = {"environment": Environment(outside_cpu_share=0.9)}
    sweep = contents(({"lr": 1}, timed([1.0, 1.0]), loaded), ({"lr": 2}, timed([1.0, 1.0]), {}))
    assert result_rows(sweep, None).notes == (
        "1 of 2 runs was contended: other load was on the machine, so times may be too long.",
    )


def test_epochs_made_in_another_environment_are_noted_below_the_table(contents, timed, host):
    elsewhere = Attempt(
        started_at="2026-11-21T12:00:00+00:00",
        ended_at="2026-11-21T12:00:10+00:00",
        last_epoch=2,
        environment=msgspec.structs.replace(host, torch_threads=8),
    )
    runs = [({"lr": at}, timed([1.0, 1.0, 1.0]), {"earlier": (elsewhere,)}) for at in range(7)]
    notes = result_rows(contents(*runs), None).notes
    assert [note.partition(": ")[2] for note in notes[:5]] == [
        "epochs 1 to 2 were made in another environment (torch threads 8, now 2); they count as warm-up."
    ] * 5
    assert notes[5] == "2 more like these, in the runs' run.json."


def test_deviations_from_settings_are_noted_below_the_table(contents, timed):
    deviating = {"deviations": ("out of memory with 16 samples at once: steps are made in pieces of 8",)}
    runs = [({"lr": at}, timed([1.0, 1.0, 1.0]), deviating if at else {}) for at in range(7)]
    notes = result_rows(contents(*runs), None).notes
    assert [note.partition(": ")[2] for note in notes[:5]] == [f"{deviating['deviations'][0]}."] * 5
    assert notes[5:] == ("1 more like these, in the runs' run.json.",)


def test_runs_on_another_host_are_noted_as_recorded_only(sweep):
    elsewhere = ProcessIdentity(pid=7, start_ticks=1, boot_id="other", host="elsewhere")
    on_other_host = {"status": Status.RUNNING, "owner": elsewhere, "ended_at": None}
    beating, silent = (
        sweep.run(CONFIG, name="a", **on_other_host),
        sweep.run(CONFIG | {"lr": 1}, name="b", **on_other_host),
    )
    write_beat(sweep.paths.run(beating).heartbeat, Beat(5, 5, 1795262410))
    table = result_rows(*read_results(sweep.paths))
    assert [row["status"] for row in table.rows] == ["running", "running"]
    assert table.notes[-1] == (
        f"Running on another host, as recorded: {beating} on elsewhere (last heartbeat 2026-11-21 12:00:10 UTC), "
        f"{silent} on elsewhere (no heartbeat). `runmanager watch` checks whether they are alive."
    )
