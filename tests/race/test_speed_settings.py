"""What is raced for a job, and why the rest is not."""

from dataclasses import replace
from typing import Any

from runmanager.race.speed_settings import THREADS, Conditions, speed_factors
from runmanager.training.options.groups import (
    CnnOptions,
    MlpOptions,
    ResidentOptions,
)
from runmanager.training.options.job import TrainingOptions

from ..job_options import job_options

JOB = job_options(model=CnnOptions(), batch_size=1000, channels_last=False, micro_batch=None)
CPU = Conditions(device="cpu", cores=4, seconds=60.0)
CUDA = replace(CPU, device="cuda")


def raced(job: TrainingOptions, known: Conditions, threads: int | None = None) -> dict[str, list[dict[str, str]]]:
    factors, _ = speed_factors(job, threads, known)
    return {each.name: [dict(settings) for settings in each.alternatives] for each in factors}


def reasons(job: TrainingOptions, known: Conditions) -> dict[str, Any]:
    return dict(speed_factors(job, None, known)[1])


def test_on_a_cpu() -> None:
    assert raced(JOB, CPU) == {
        "loader": [
            *({"loader": "dataloader", "num_workers": count} for count in ("1", "2", "4")),
            {"loader": "resident", "num_workers": "0"},
        ],
        "channels_last": [{"channels_last": "true"}],
        "micro_batch": [{"micro_batch": each} for each in ("auto", "250", "62")],
        "threads": [{THREADS: "1"}, {THREADS: "2"}],
    }
    assert reasons(JOB, CPU) == {
        "pinning": "nothing is copied to a device",
        "graphs": "only cuda captures steps",
        "compile": "it is raced from `--seconds 300` on, as compiling takes long",
        "precision": "it changes results; `--allow precision` races it",
    }


def test_on_a_gpu() -> None:
    found = raced(JOB, replace(CUDA, seconds=300.0, allowed=frozenset({"precision"})))
    assert found["pinning"] == [
        {"loader.pin_memory": "false"},
        {"loader.prefetch_to_device": "true", "loader.pin_memory": "null"},
    ]
    assert found["graphs"] == [{"graphs": "true"}]
    assert found["compile"] == [{"compile": "true"}]
    assert [each["precision"] for each in found["precision"]] == ["tf32", "bf16", "fp16"]
    assert not {"micro_batch", "threads"} & set(found)
    assert raced(replace(JOB, micro_batch="auto"), CUDA)["graphs"] == [{"graphs": "true", "micro_batch": "null"}]


def test_what_a_job_cannot_do_is_not_raced() -> None:
    flat = replace(JOB, model=MlpOptions())
    assert reasons(flat, CPU)["channels_last"] == "its inputs have no channels"
    whole = "the model or the loss needs whole batches, or the model draws random numbers for each"
    assert reasons(JOB, replace(CPU, splits=False))["micro_batch"] == whole
    assert "resident" in reasons(replace(JOB, loader=ResidentOptions()), CUDA)["pinning"]
    assert reasons(JOB, replace(CPU, cores=1))["threads"] == "there is one core"
    custom = replace(JOB, dataset={"_target_": "mine.Data"}, model={"_target_": "mine.Net"})
    assert {each["loader"] for each in raced(custom, CPU)["loader"]} == {"dataloader"}
    assert "custom model" in reasons(custom, CPU)["micro_batch"]


def test_a_value_that_is_raced_as_auto_already_is_not_raced_again() -> None:
    automatic = replace(JOB, channels_last="auto", micro_batch="auto")
    known = replace(CPU, automatic={"channels_last": "false", "micro_batch": "250"})
    found = raced(automatic, known)
    assert found["channels_last"] == [{"channels_last": "true"}]
    assert found["micro_batch"] == [{"micro_batch": "null"}, {"micro_batch": "62"}]
    chosen = replace(automatic, micro_batch=62)
    assert raced(chosen, known)["micro_batch"] == [{"micro_batch": "null"}, {"micro_batch": "auto"}]


def test_the_user_decides() -> None:
    known = replace(
        CPU,
        fixed=frozenset({"channels_last"}),
        lists={"num_workers": ["0", "3"], "micro_batch": ["null", "100"], THREADS: ["4", "3"]},
    )
    assert raced(JOB, known, threads=4) == {
        "loader": [{"loader": "dataloader", "num_workers": "3"}, {"loader": "resident", "num_workers": "0"}],
        "micro_batch": [{"micro_batch": "100"}],
        "threads": [{THREADS: "3"}],
    }
    assert reasons(JOB, known)["channels_last"] == "its value was given"
    fixed = replace(CPU, fixed=frozenset({"num_workers", "loader.prefetch_factor"}))
    assert "loader" not in raced(JOB, fixed)


def test_a_phase_limits_what_can_be_gained_unless_workers_compute_on_the_same_cores() -> None:
    factors, _ = speed_factors(JOB, None, CPU)
    assert {each.name: tuple(each.phases) for each in factors}["loader"] == ("data", "transfer")
    factors, _ = speed_factors(replace(JOB, num_workers=2), None, CPU)
    assert not any(each.phases for each in factors)
