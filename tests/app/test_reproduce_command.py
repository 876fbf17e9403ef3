"""Tests of the command that reproduces a stored run: it gives the same cell, or says why not."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hydra import compose, initialize_config_dir

from runmanager.app import reproduce_command
from runmanager.app.compose.schema import conf_folder, plain_config, register_schema
from runmanager.app.reproduce_command import current_environment, reproduce
from runmanager.cli.main import run_command
from runmanager.errors import UsageError
from runmanager.launching.hydra_internals import version_base
from runmanager.records.host.gpus import gpu_names
from runmanager.records.run.run_record import Environment, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.settings.signature import signature
from runmanager.records.settings.values import plain_settings

WITHOUT_PLUGINS = ["hydra/launcher=basic", "hydra/sweeper=basic"]


def composed(*words: str) -> dict[str, Any]:
    register_schema()
    with initialize_config_dir(str(conf_folder()), **version_base()):
        return plain_settings(plain_config(compose("config", overrides=[*WITHOUT_PLUGINS, *words])))


def stored(config: dict[str, Any], **fields: Any) -> RunRecord:
    given = Environment(command=("python", "-m", "runmanager", "-m", "lr=1,2"))
    identity = signature(config)
    usual = {"name": "run", "signature": identity, "status": Status.FINISHED, "environment": given}
    return RunRecord(config=config, **{**usual, **fields})


@pytest.mark.parametrize(
    "words",
    [
        "experiment=gpu_crossover model.depth=4 device=cpu name=x data_root='a folder' checkpoint.keep_best=loss",
        "model=mlp model.hidden=[3,4] optimizer=sgd optimizer.momentum=0.5 early_stop.metric=loss seed=7",
        "model=custom model._target_=a.B +model.width=3 +model.names=[x,'y z'] dataset=fake",
    ],
)
def test_the_command_gives_the_cell_of_the_run(words: str) -> None:
    config = composed(*shlex.split(words))
    found = reproduce(stored(config), trust="_target_" in words)
    assert found.is_proved
    assert found.remarks == ()
    assert found.command[:3] == ("python", "-m", "runmanager")
    again = composed(*found.command[3:])
    elsewhere = {"name": None, "output_root": "outputs"}
    assert {**again, **elsewhere} == {**config, **elsewhere}
    assert "name=" not in found.line
    assert shlex.split(found.line) == ["runmanager", "run", *found.command[3:]]


def test_a_setting_that_the_run_did_not_know_has_the_value_that_it_had_in_effect() -> None:
    config = composed("lr=0.5", "channels_last=false", "micro_batch=null")
    older = {name: value for name, value in config.items() if name not in ("channels_last", "micro_batch", "metrics")}
    found = reproduce(stored(older))
    assert found.command[3:] == ("lr=0.5", "channels_last=false", "micro_batch=null")
    assert found.is_proved


def test_a_default_that_follows_another_setting_is_not_in_the_command() -> None:
    def words(*given: str) -> list[str]:
        found = reproduce(stored(composed(*given)))
        assert found.is_proved
        return list(found.command[3:])

    assert words("dataset.size=600") == ["dataset.size=600"]
    for other in ("50", "null"):
        assert words("dataset.size=600", f"dataset.val_size={other}")[1:] == [f"dataset.val_size={other}"]
    assert words("dataset=fake", "dataset.size=60") == ["dataset=fake", "dataset.size=60"]
    assert words("dataset=fake", "dataset.size=60", "dataset.val_size=1000")[2:] == ["dataset.val_size=1000"]


def test_several_seeds_are_one_command() -> None:
    config = composed("seed=3", "lr=0.5")
    found = reproduce(stored(config), seeds=[{"seed": seed} for seed in (3, 4, 3)])
    assert found.command == ("python", "-m", "runmanager", "-m", "lr=0.5", "seed=3,4")


def test_shown_settings_are_in_the_command_even_at_their_defaults() -> None:
    shown = ["lr", "model.name", "seed", "model.hidden"]  # `model.hidden` belongs to another cell
    found = reproduce(stored(composed("batch_size=20")), shown=shown)
    assert found.command == ("python", "-m", "runmanager", "model=cnn", "lr=0.01", "batch_size=20", "seed=0")
    assert found.is_proved
    several = reproduce(stored(composed("lr=0.01")), seeds=[{"seed": 0}, {"seed": 1}], shown=["lr", "seed"])
    assert several.command == ("python", "-m", "runmanager", "-m", "lr=0.01", "seed=0,1")


def test_the_command_of_the_best_cell_has_every_shown_setting(
    command: Callable[..., Any],
    tiny: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    words = [word for word in tiny if not word.startswith("batch_size=")]
    assert command("-m", *words, "lr=0.01,0.5", "batch_size=16,1000", "seed=0,1", "name=grid").status == 0
    monkeypatch.chdir(tmp_path)
    capfd.readouterr()
    where = "lr == 0.01 and batch_size == 1000"  # the defaults
    assert run_command(["best", "grid", "--where", where, "--format", "json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["best"]["settings"] == {"lr": 0.01, "batch_size": 1000}
    assert {"lr=0.01", "batch_size=1000", "seed=0,1"} <= set(found["command"])
    plan = command(*found["command"][3:], "--dry-run").out
    planned = set(re.findall(r"^\S+-([0-9a-f]{8}) ", plan, re.M))
    assert planned == {run["run"][-8:] for run in found["best"]["runs"]} and len(planned) == 2, plan


def test_settings_that_the_command_cannot_have_are_remarks() -> None:
    loop = stored({"lr": 0.5, "seed": 1, "depth": 3}, environment=Environment(command=("train.py", "--fast")))
    assert reproduce(loop, shown=["lr", "depth"]).remarks[-1] == "This cell has lr=0.5, depth=3."
    gone = stored({**composed("lr=0.5"), "model": {"name": "cnn", "wings": 2}})
    assert reproduce(gone, shown=["lr", "model.name"]).remarks[-1] == "This cell has lr=0.5, model=cnn."
    assert len(reproduce(gone).remarks) == 1


def test_a_run_rejected_today_has_its_original_command() -> None:
    config = composed()
    gone = {**config, "model": {"name": "cnn", "wings": 2}}
    found = reproduce(stored(gone))
    assert not found.is_proved
    assert found.command == ("python", "-m", "runmanager", "-m", "lr=1,2")
    assert "Today's settings reject it" in found.remarks[0]
    assert "wings" in found.remarks[0]


ELSEWHERE = "../" * 20 + "tmp/own"
HYDRAS = {"hydra.searchpath": ["pkg://own"], "model@hydra.callbacks.x": "custom", "hydra/launcher": "basic"}


@pytest.mark.parametrize(
    "crafted",
    [
        *({key: value} for key, value in HYDRAS.items()),
        {"experiment": ELSEWHERE},
        {"data_root": {"${oc.env:HOME}": 1}},
        *({"model": {"name": name}} for name in (ELSEWHERE, "cnn,mlp", ["cnn"], 7, None, {"a": 1}, {})),
    ],
    ids=str,
)
def test_stored_names_reach_hydra_only_as_settings(crafted: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored names become parts of a command that users copy and run."""
    composed_words: list[str] = []
    own = reproduce_command._composed
    monkeypatch.setattr(reproduce_command, "_composed", lambda words: composed_words.extend(words) or own(words))
    found = reproduce(stored({**composed(), **crafted}))
    assert found.command == ("python", "-m", "runmanager", "-m", "lr=1,2")  # the original command
    assert not found.is_proved and "Today's settings reject it" in found.remarks[0]
    assert composed_words == []  # not even composed, as Hydra opens the file that a choice names


def test_a_run_without_a_newer_setting_is_another_cell() -> None:
    config = composed()
    older = {**config, "measure": {"name": "single"}}
    found = reproduce(stored(older))
    assert not found.is_proved
    assert "another cell" in found.remarks[0]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"model": {"name": "custom", "_target_": "subprocess.Popen"}}, "subprocess.Popen as model._target_"),
        ({"dataset": {"name": "custom", "_target_": "os.system", "holdout": 0.5}}, "os.system as dataset._target_"),
        ({"model": {"name": "cnn", "a": [{"_target_": "evil.Net"}]}}, r"evil.Net as model\.a\[0\]\._target_"),
        ({"+hydra.launcher._target_": "evil.Net"}, r"evil.Net as \+hydra\.launcher\._target_"),
        (
            {"model": {"name": "custom", "_target_": "torch.nn.Linear", "x": [{"a:1,_target_": "evil.Net"}]}},
            "evil.Net as",
        ),
        ({"model": {"name": "custom", "_target_": "torch.nn.functional.relu"}}, "a function"),
        ({"loss": {"_target_": "evil.Loss"}}, r"evil.Loss as loss\._target_"),
        ({"loss": {"_target_": "torchmetrics.F1Score"}}, r"torchmetrics.F1Score as loss\._target_"),
        ({"metrics": {"f1": {"_target_": "evil.F1"}}}, r"evil.F1 as metrics\.f1\._target_"),
        ({"metrics": {"f1": {"_target_": "torchmetrics.functional.f1_score"}}}, "the module torchmetrics.functional"),
        ({"metrics": {"f1": {"_target_": "torchmetrics.MetricCollection"}}}, "the class torchmetrics.collections"),
        ({"metrics": {"f1": {"_target_": "torchmetrics.classification.f_beta.os"}}}, "No module named"),
    ],
)
def test_untrusted_targets_are_not_in_the_command(changed: dict[str, Any], named: str) -> None:
    record = stored({**composed(), **changed})
    with pytest.raises(UsageError, match=rf"^A stored `_target_` is data .*got .*{named}.*; .* add --trust\.$"):
        reproduce(record)
    assert reproduce(record, trust=True).command


def test_a_network_of_torch_needs_no_trust() -> None:
    words = ("model=custom", "model._target_=torch.nn.Linear", "+model.in_features=3")
    assert reproduce(stored(composed(*words))).is_proved


def test_a_loss_of_torch_and_metrics_of_torchmetrics_need_no_trust() -> None:
    metrics = (
        "metrics.f1._target_=torchmetrics.F1Score",
        "metrics.f1.task=multiclass",
        "metrics.iou._target_=torchmetrics.segmentation.MeanIoU",
    )
    found = reproduce(stored(composed("loss=huber", "+loss.delta=0.5", *metrics)))
    assert found.is_proved
    words = ("loss._target_=torch.nn.HuberLoss", "+loss.delta=0.5")
    assert set(words) | set(metrics[::2]) <= set(found.command)


def test_the_default_loss_is_not_in_the_command() -> None:
    config = composed("lr=0.5")
    before = {key: value for key, value in config.items() if key not in ("loss", "metrics")}  # of an earlier version
    for each in (config, before):
        found = reproduce(stored(each))
        assert found.is_proved and found.command == ("python", "-m", "runmanager", "lr=0.5")


def test_stored_hydra_settings_are_not_in_the_command() -> None:
    config = composed("lr=0.5")
    found = reproduce(stored({**config, "hydra": {"searchpath": ["file:///elsewhere"], "run": {"dir": "/"}}}))
    assert found.command == ("python", "-m", "runmanager", "lr=0.5")


def test_a_custom_loop_has_the_command_of_its_script() -> None:
    environment = msgspec.structs.replace(stored(composed()).environment, command=("train.py", "--fast"))
    record = msgspec.structs.replace(stored({"lr": 1}), environment=environment)
    assert reproduce(record).command == ("python", "train.py", "--fast")


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"config": {"lr": 1}}, "a custom loop"), ({"session": "abc"}, "took turns with other runs")],
)
def test_runs_that_one_command_cannot_make_alone_have_a_remark(fields: dict[str, Any], said: str) -> None:
    record = msgspec.structs.replace(stored(composed()), **fields)
    found = reproduce(record)
    assert found.command == record.environment.command
    assert not found.is_proved
    assert said in found.remarks[0]


def test_the_current_environment_keeps_what_only_a_run_can_find_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a folder's commit is looked up once in a process
    monkeypatch.setenv("RUNMANAGER_COMMIT", "abc-dirty")
    then = Environment(host="then", cpu_model="Zen", device_name="Zen", torch_threads=5, cuda="13.2", python="3.0")
    today = current_environment(then)
    assert (today.torch_threads, today.cuda) == (5, "13.2")
    assert (today.commit, today.commit_clean) == ("abc", False)
    assert today.device_name == today.cpu_model != "Zen"
    assert today.python != "3.0"
    assert today.host != "then"


def test_a_missing_gpu_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    then = Environment(cpu_model="Zen", device_name="NVIDIA H200")
    for found, said in (([], "no NVIDIA GPU found"), (["NVIDIA H200"], "NVIDIA H200"), (["Tesla"] * 2, "Tesla")):
        monkeypatch.setattr("runmanager.app.reproduce_command.gpu_names", lambda found=found: found)
        assert current_environment(then).device_name == said


def test_gpu_names_are_read_from_the_driver(tmp_path: Path) -> None:
    for number, model in enumerate(("NVIDIA H200", "NVIDIA A100-SXM4-80GB")):
        folder = tmp_path / f"0000:0{number}:00.0"
        folder.mkdir()
        (folder / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 11\nDevice Minor: \t {number}\n")
    assert gpu_names(driver=tmp_path) == ["NVIDIA H200", "NVIDIA A100-SXM4-80GB"]
    assert gpu_names(driver=tmp_path / "nothing") == []


@pytest.mark.parametrize(
    ("cell", "seeds", "command"),
    [
        (["runmanager", "run", "train.py", "lr=1", "seed=2"], [2, 0], "runmanager sweep train.py lr=1 seed=0,2"),
        (["runmanager", "run", "train.py", "seed=2"], [2, 2], "runmanager run train.py seed=2"),
        (["runmanager", "run", "train.py", "lr=1", "--", "seed=2"], [0, 1], None),
        (["runmanager", "run", "train.py", "seed=2"], ["a,b", "c"], None),
        (["python", "train.py", "-m", "seed=0"], [0, 1], "python train.py -m seed=0,1"),
        (["runmanager", "run", "train.py", "lr=1"], [0, 1], None),
    ],
)
def test_the_command_of_another_programs_cell_has_all_its_seeds(
    cell: list[str], seeds: list[Any], command: str | None
) -> None:
    record = RunRecord(name="x", signature="0" * 64, status=Status.FINISHED, config={}, cell_command=tuple(cell))
    found = reproduce(record, seeds=[{"seed": seed} for seed in seeds])
    assert found.line == (command or " ".join(cell))


def test_the_command_of_a_cell_with_several_seeds_has_all_of_them() -> None:
    words = ("runmanager", "run", "train.py", "random-seed=0", "model.seed=1", "lr=1")
    record = RunRecord(name="x", signature="0" * 64, status=Status.FINISHED, config={}, cell_command=words)
    crossed = [{"random_seed": one, "model.seed": other} for one in (0, 1) for other in (1, 2)]
    line = "runmanager sweep train.py random-seed=0,1 model.seed=1,2 lr=1"
    assert reproduce(record, seeds=crossed).line == line
    assert reproduce(record, seeds=[crossed[0], crossed[3]]).command == words, "two pairs are no grid"
