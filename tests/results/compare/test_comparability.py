"""What keeps two sides from being compared, and what is named where two sweeps are."""

import msgspec
import pytest

from runmanager.results.gate.sweep_pairs import TwoSweeps

from .conftest import outcome

CPU = {"lr": 0.01, "device": "cpu"}
CUDA = CPU | {"device": "cuda"}


@pytest.mark.parametrize("metric", ["samples_per_second", "epoch_seconds"])
def test_times_of_adopted_runs_are_not_compared(contents, steady, metric):
    adopted = {"adopted": "elsewhere/first"}
    way_out = "what they recorded is compared with --metric: val_accuracy, accuracy, val_loss, loss"
    one = contents((CPU, steady(1.0), {}), (CUDA, steady(0.5), adopted))
    assert outcome(one, metric=metric) == ("not measured", f"adopted runs were not timed: cuda; {way_out}")
    both = contents((CPU, steady(1.0), adopted), (CUDA, steady(0.5), adopted))
    assert outcome(both, metric=metric) == ("not measured", f"adopted runs were not timed: cpu, cuda; {way_out}")


def test_losses_of_adopted_runs_are_compared(contents, timed):
    runs = [
        (config | {"seed": seed}, timed([1.0] * (2 + seed + 3 * number)), {"adopted": "elsewhere/first"})
        for number, config in enumerate((CPU, CUDA))
        for seed in range(3)
    ]
    assert outcome(contents(*runs), metric="val_loss")[0] != "not measured"


def of_two_sweeps(contents, steady, *environments):
    """The reason of the row of two sweeps, each of one run, made in these environments."""
    first, second = (contents((CPU, steady(1.0), {"environment": each})) for each in environments)
    (row,) = TwoSweeps(("old", "new"), (first, second), (None, None)).compare().rows
    return row["reason"]


@pytest.mark.parametrize(
    ("name", "before", "now", "text"),
    [
        ("commit", "0123456789abcdef", "fedcba9876543210", "commit differs: 0123456789 ({}), fedcba9876 ({})"),
        ("python", "3.11.7", "3.12.1", "python differs: 3.11.7 ({}), 3.12.1 ({})"),
        ("libraries", {"torch": "2.15.0"}, {"torch": "2.16.0"}, "torch differs: 2.15.0 ({}), 2.16.0 ({})"),
        ("host", "anvil", "forge", "host differs: anvil ({}), forge ({})"),
        ("cpu_model", "Zen 4", "Zen 5", "CPU model differs: Zen 4 ({}), Zen 5 ({})"),
        ("device_name", "H200", "L4", "device differs: H200 ({}), L4 ({})"),
        ("driver", "550.1", "560.2", "driver differs: 550.1 ({}), 560.2 ({})"),
        ("cuda", "12.4", None, "CUDA differs: 12.4 ({}), unknown ({})"),
        ("code", {"own.py": "0a"}, {"own.py": "1a"}, "code differs: own.py"),
    ],
)
def test_what_differs_between_two_sweeps_is_named_and_measured(contents, steady, host, name, before, now, text):
    environments = [msgspec.structs.replace(host, **{name: value}) for value in (before, now)]
    reason = of_two_sweeps(contents, steady, *environments)
    assert reason.count(text.format("sweep=old", "sweep=new")) == 1
    assert "are equal" not in reason and "one run a side" in reason


def test_equal_environments_of_two_sweeps_are_named_as_equal(contents, steady, host):
    assert "commit, libraries, host and device are equal" in of_two_sweeps(contents, steady, host, host)


def test_another_number_of_threads_keeps_two_sweeps_from_being_compared(contents, steady, host):
    reason = of_two_sweeps(contents, steady, host, msgspec.structs.replace(host, torch_threads=1))
    assert "torch threads differs: 2 (sweep=old), 1 (sweep=new)" in reason and "one run a side" not in reason
