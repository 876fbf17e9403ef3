"""Config groups of Hydra applications: mandatory ones are swept as by Hydra's own sweeper."""

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hydra
import pytest
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from runmanager.app.compose.cell_loader import CellLoader
from runmanager.app.compose.grid_rules import GridRules
from runmanager.app.compose.override_grid import read_override_grid
from runmanager.cli.main import run_command
from runmanager.launching.hydra_internals import version_base
from runmanager.records.settings.signature import signature

from ....file_schemas import check_sweep_files
from .conftest import Application

FILES = {
    "model/a": "{width: 3, name: a}",
    "model/b": "{width: 5, depth: 2}",
    "optimizer/sgd": "{_target_: torch.optim.SGD, momentum: 0.9}",
    "optimizer/adam": "{_target_: torch.optim.Adam, betas: [0.9, 0.99]}",
    "db/mysql/small": "{rows: 1}",
    "db/mysql/big": "{rows: 2}",
    "outer/x": "{defaults: [{size: ???}, _self_], k: 1}",
    "outer/y": "{defaults: [{size: s}, _self_], k: 2}",
    "outer/size/s": "{v: 1}",
    "outer/size/l": "{v: 2}",
    "experiment/first": "# @package _global_\n{defaults: [{override /model: a}], lr: 3}",
    "experiment/second": "# @package _global_\n{defaults: [{override /model: b}], lr: 4, model: {depth: 9}}",
    "../more/extra/p": "{e: 1}",
    "../more/extra/q": "{e: 2}",
}
MODEL = "defaults: [{model: ???}, _self_]\nlr: 0.1\n"
SEARCHED = "hydra: {searchpath: ['file://FOLDER/more']}\n"
LAYOUTS = {
    "one group": (MODEL, "model=a,b"),
    "with other axes": (MODEL, "model=b,a lr=1,2 +seed=3,4"),
    "with settings of a choice": (MODEL, "model=a,b model.width=7,8 +model.new=1"),
    "with a mapping": (MODEL, "model=a,b +model={new:1},{new:2}"),
    "all choices": (MODEL, "model=glob(*) lr=choice(1,2)"),
    "several choices": (MODEL, "model=[a,b],[b]"),
    "two groups": ("defaults: [{model: ???}, {optimizer: ???}, _self_]", "optimizer=sgd,adam model=a,b"),
    "after the rest": ("defaults: [_self_, {model: ???}]\nmodel: {width: 1, mine: 2}", "model=a,b"),
    "a nested group": ("defaults: [{db/mysql: ???}, _self_]", "db/mysql=small,big"),
    "files of nested groups": ("defaults: [{db: ???}, _self_]", "db=mysql/small,mysql/big"),
    "a group inside a choice": ("defaults: [{outer: ???}, _self_]", "outer=x,y outer/size=s,l"),
    "a group inside one choice": ("defaults: [{outer: ???}, _self_]", "outer=x outer/size=s,l"),
    "a package": ("defaults: [{model@net: ???}, _self_]", "model@net=a,b net.width=1,2"),
    "the global package": ("defaults: [{model@_global_: ???}, _self_]", "model@_global_=a,b width=1,2"),
    "a group twice": (
        "defaults: [{model@net.one: ???}, {model@net.two: ???}]",
        "model@net.one=a,b model@net.two=a,b",
    ),
    "a nested group in a package": ("defaults: [{db/mysql@store: ???}]", "db/mysql@store=small,big"),
    "in a preset": (
        "defaults: [{model: ???}, _self_, {experiment: null}]\nlr: 0.1",
        "experiment=first,second",
    ),
    "a mandatory preset": (
        "defaults: [{model: ???}, _self_, {experiment: ???}]\nlr: 0.1",
        "experiment=first,second model=a,b",
    ),
    "an added preset": (f"{MODEL}", "+experiment=first,second"),
    "params": (f"{MODEL}hydra: {{sweeper: {{params: {{model: 'a,b'}}}}}}", ""),
    "params and axes": (f"{MODEL}hydra: {{sweeper: {{params: {{model: 'a,b', lr: '1,2'}}}}}}", "+seed=1,2 lr=3,4"),
    "params of nested groups": (
        "defaults: [{outer: ???}, _self_]\nhydra: {sweeper: {params: {outer: 'x,y', outer/size: 's,l'}}}",
        "",
    ),
    "a folder searched": (f"{MODEL}{SEARCHED}", "model=a,b +extra=p,q"),
    "a mandatory group searched": (f"defaults: [{{extra: ???}}, _self_]\n{SEARCHED}", "extra=p,q"),
    "interpolations of choices": (
        f"{MODEL}kind: '${{hydra:runtime.choices.model}}'\nwidth: '${{model.width}}'",
        "model=a,b",
    ),
}


@pytest.fixture
def write_layout(tmp_path: Path) -> Callable[[str], Path]:
    def write(config: str, **more: str) -> Path:
        for name, text in {**FILES, **more, "config": config.replace("FOLDER", str(tmp_path))}.items():
            path = tmp_path / "conf" / f"{name}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("???", "'???'"))
        return tmp_path / "conf"

    return write


@pytest.fixture(autouse=True)
def no_hydra() -> Iterator[None]:
    GlobalHydra.instance().clear()
    yield
    GlobalHydra.instance().clear()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cells_are_those_of_hydras_own_sweeper(layout: str, write_layout: Callable[[str], Path]) -> None:
    config, words = LAYOUTS[layout]
    with initialize_config_dir(str(write_layout(config)), **version_base()):
        hydras: Any = GlobalHydra.instance().config_loader()
        master = hydras.load_configuration("config", words.split(), RunMode.MULTIRUN)
        params = OmegaConf.select(master, "hydra.sweeper.params") or {}
        given = [*(f"{key}={value}" for key, value in params.items()), *words.split()]
        parsed = OverridesParser.create(config_loader=hydras).parse_overrides(given)
        for each in parsed:
            each.config_loader = hydras
        (jobs,) = BasicSweeper.split_arguments(parsed, None)
        ours = CellLoader(hydras, is_built_in=False)
        ours.remember(master)
        cells = read_override_grid(ours, given, GridRules()).combinations()
        assert cells == [list(job) for job in jobs] and len(cells) > 1
        for job in jobs:
            assert seen(ours, master, list(job)) == seen(hydras, master, list(job)), job


def seen(loader: ConfigLoaderImpl, master: DictConfig, words: list[str]) -> list[Any]:
    """What a job sees: its configuration, and its choices."""
    config = loader.load_sweep_config(master, words)
    choices = OmegaConf.to_container(config.hydra.runtime.choices)
    del config.hydra
    return [OmegaConf.to_container(config), choices]


def write_groups(application: Application) -> None:
    """The application with two mandatory groups, one of them in a package, and presets."""
    (application.folder / "conf" / "config.yaml").write_text(
        "defaults:\n  - model: ???\n  - model@net: ???\n  - _self_\n  - preset: null\n"
        "lr: 0.1\nway: ???\ncopy: ${way}\nhydra: {sweeper: {name: '${project}'}}\nproject: ???\n"
    )
    presets = {
        "first": "defaults: [{override /model: small}]\nlr: 1\n",
        "second": "defaults: [{override /model: big}]\nlr: 2\n",
        "grid": "lr: 3\nhydra: {sweeper: {params: {lr: '5,6'}}}\n",
        "workers": "lr: 4\nhydra: {launcher: {workers: 2}}\n",
    }
    (application.folder / "conf" / "preset").mkdir()
    for name, text in presets.items():
        (application.folder / "conf" / "preset" / f"{name}.yaml").write_text(f"# @package _global_\n{text}")


def test_what_was_forgotten_is_named_in_one_line_with_its_choices(application: Application) -> None:
    write_groups(application)
    done = application.run("model=small,big", "project=groups")
    assert (done.status, done.out) == (2, "")
    assert done.err.splitlines() == ["error: `model@net` must be one of big, small, got nothing; add `model@net=…`."]
    done = application.run("model=small,bigg", "lr=1,2", "project=groups")
    assert done.status == 2 and sorted(done.err.splitlines()) == [
        "error: `model@net` must be one of big, small, got nothing; add `model@net=…`.",
        "error: `model` must be one of big, small, got bigg; did you mean 'big'?",
    ]
    done = application.run("model=small,big", "model@net=big", "project=groups")
    assert done.status == 2 and done.err.splitlines() == ["error: `way` must be given, got nothing; add `way=…`."]
    done = application.run("model=small,big", "model@net=big", "way=fine")
    if hydra.__version__.startswith("1.3."):
        (line,) = done.err.splitlines()
        assert done.status == 2
        assert line.startswith("error: `hydra.sweeper.name` must have one value for the whole sweep")
    else:  # Hydra 1.4 resolves the sweeper's settings itself, before there is a sweeper
        assert done.status == 1 and "Missing mandatory value: project" in done.err
    assert not (application.folder / "outputs").exists()


def test_mandatory_groups_run_from_the_command_from_points_and_from_presets(application: Application) -> None:
    write_groups(application)
    common = ("project=groups", "way=fine")
    (application.folder / "points.yaml").write_text(
        "- {model: small, model@net: big}\n- {model: big, model@net: big}\n"
    )
    for words in (
        ("model=small,big", "model@net=small"),
        ("hydra.sweeper.points=points.yaml",),
        ("preset=first,second", "model@net=small"),
    ):
        done = application.run(*common, *words)
        assert done.status == 0, done.err
    cells = [
        tuple(each.settings[name] for name in ("model.width", "net.width", "lr"))
        for each in application.records("groups")
    ]
    assert sorted(cells) == [(8, 8, 0.1), (8, 8, 1), (8, 80, 0.1), (80, 8, 0.1), (80, 8, 2), (80, 80, 0.1)]


def test_swept_choices_change_nothing_that_a_sweep_has_once(application: Application) -> None:
    write_groups(application)
    common = ("project=groups", "way=fine", "model=small", "model@net=small", "hydra.sweeper.dry_run=true")
    (application.folder / "points.yaml").write_text("- {preset: first}\n- {preset: grid}\n")
    for words, changed in (
        (("preset=first,grid", "model=small,big"), "hydra.sweeper.params.lr"),
        (("hydra.sweeper.points=points.yaml",), "hydra.sweeper.params.lr"),
        (("+hydra.sweeper.params.preset=grid",), "hydra.sweeper.params.lr"),
        (("preset=first,workers",), "hydra.launcher.workers"),
    ):
        done = application.run(*common, *words)
        (line,) = done.err.splitlines()
        assert done.status == 2, done.out
        assert line.startswith("error: `preset` must be chosen once for the whole sweep, got `preset=")
        assert f"changes `{changed}`; run each by itself: with the same `hydra.sweeper.name`" in line
    assert "2 start" in application.run(*common, "preset=grid").out
    assert "4 start" in application.run(*common, "preset=grid", "model=small,big").out


OPTIMIZERS = {
    "sgd": "{_target_: torch.optim.SGD, rate: 0.5, momentum: 0.9}",
    "adam": "{_target_: torch.optim.Adam, rate: 0.001}",
}


@pytest.fixture
def command(application: Application, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command in this process, in the application's folder; return what it prints."""
    monkeypatch.chdir(application.folder)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: str) -> str:
        status = run_command(words)
        printed = capfd.readouterr()
        assert status == 0, printed.err
        return printed.out

    return run


def columns_of(printed: str) -> list[str]:
    """The headings of a printed table."""
    lines = printed.splitlines()
    return lines[next(at for at, line in enumerate(lines) if line.startswith("──")) - 1].split()


def write_choices(application: Application) -> None:
    """The application with groups in a folder, in another package, and of presets."""
    (application.folder / "conf" / "config.yaml").write_text(
        "defaults:\n  - _self_\n  - model: small\n  - optimizer: sgd\n  - optimizer@second: adam\n"
        "  - data/set: one\n  - preset: null\nlr: 0.1\nway: fine\nseed: 0\n"
    )
    files = {f"optimizer/{name}": text for name, text in OPTIMIZERS.items()}
    files |= {"data/set/one": "size: 1", "data/set/two": "pages: 2"}
    files |= {f"preset/{name}": f"# @package _global_\nlr: {lr}" for name, lr in (("fast", 0.4), ("slow", 0.2))}
    for name, text in files.items():
        path = application.folder / "conf" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_choice_is_shown_and_filtered_like_a_setting(application: Application, command: Callable[..., str]) -> None:
    write_choices(application)
    axes = ("optimizer=sgd,adam", "lr=0.1,0.2", "seed=0,1,2", "optimizer@second=adam")
    ranked = ("hydra.sweeper.metric=score", "hydra.sweeper.better=max")
    done = application.run("hydra.sweeper.name=chosen", "hydra.sweeper.order=grid", *ranked, *axes)
    assert done.status == 0, done.err
    assert columns_of(done.out)[:4] == ["lr", "optimizer", "seeds", "status"]
    assert check_sweep_files(application.sweep("chosen").root) >= 10

    # Files have the choice, and everything that differs with it.
    rows = application.table("chosen")
    assert {(row["optimizer"], row["optimizer._target_"], row["optimizer.rate"]) for row in rows} == {
        ("sgd", "torch.optim.SGD", "0.5"),
        ("adam", "torch.optim.Adam", "0.001"),
    }
    assert "model" not in rows[0] and "preset" not in rows[0]
    records = application.records("chosen")
    choices = {"model": "small", "optimizer": "sgd", "optimizer@second": "adam", "data/set": "one", "preset": None}
    assert records[0].choices == choices
    signatures = {signature(each.config, unsigned=each.unsigned or (), later={}) for each in records}
    assert {each.signature for each in records} == signatures

    for condition, number in {
        "optimizer==sgd": 6,
        'optimizer in ["adam","other"] and lr==0.1': 3,
        "optimizer._target_=='torch.optim.SGD'": 6,
        "model!=small": 0,
        "model==small and optimizer@second==adam and data/set==one": 12,
        "preset==null": 12,
    }.items():
        assert f"{number} of 12 runs match {condition}." in command("table", "chosen", "--where", condition)
    assert "optimizer:2 lr:2 seed:3" in command("ls", "outputs")
    assert "with lr=0.2, optimizer=" in command("best", "chosen")
    compared = command("compare", "chosen", "--axis", "optimizer", "--metric", "score", "--all")
    assert columns_of(compared)[0] == "lr" and compared.count("adam / sgd") == 2
    assert columns_of(command("compare", "chosen", "--axis", "lr", "--metric", "score", "--all"))[0] == "optimizer"
    pivot = command("table", "chosen", "--pivot", "optimizer:lr:score")
    assert len([line for line in pivot.splitlines() if line.startswith(("adam ", "sgd "))]) == 2
    ordered = csv.DictReader(io.StringIO(command("table", "chosen", "--sort", "optimizer", "--format", "csv")))
    assert [row["optimizer"] for row in ordered] == ["adam"] * 6 + ["sgd"] * 6
    two = [str(application.sweep("chosen").run(run.name).root) for run in (records[0], records[-1])]
    assert ["optimizer", "sgd", "adam"] in [line.split() for line in command("diff", *two).splitlines()]
    assert "  data/set " in command("show", two[0], "--all")


def test_choices_of_other_packages_folders_lists_and_presets_have_their_column(
    application: Application, command: Callable[..., str]
) -> None:
    write_choices(application)
    common = ("hydra.sweeper.quiet=true", "seed=0,1")
    for words, column, values in (
        ("preset=fast,slow", "preset", ["fast", "slow"]),
        ("optimizer@second=adam,sgd", "optimizer@second", ["adam", "sgd"]),
        ("data/set=two,one", "data/set", ["two", "one"]),
        ("data/set=[one,two],[one]", "data/set", [["one", "two"], ["one"]]),
    ):
        name = f"of_{column.replace('/', '_').replace('@', '_')}_{len(values[0])}"
        done = application.run(f"hydra.sweeper.name={name}", words, *common)
        assert done.status == 0, done.err
        assert application.plan(name)["axes"] == {column: values, "seed": [0, 1]}
        assert columns_of(command("table", name))[:2] == [column, "seeds"]
        compared = command("compare", name, "--axis", column, "--metric", "loss", "--all")
        assert "compared" in columns_of(compared)[:1]
    excluded = ("hydra.sweeper.dry_run=true", "hydra.sweeper.exclude=optimizer@second==sgd")
    assert "1 cell of the grid is excluded." in application.run(*excluded, "optimizer@second=sgd,adam").out


def test_sweeps_without_recorded_choices_read_as_before_and_gain_them(
    application: Application, command: Callable[..., str]
) -> None:
    words = ("hydra.sweeper.name=old", "model=small,big")
    assert application.run(*words).status == 0
    record = application.sweep("old").record
    plan = json.loads(record.read_text())
    plan["axes"] = {"model.width": [8, 80]}
    for each in (plan, *plan["planned"]):
        each.pop("choices", None)
    record.write_text(json.dumps(plan))
    for path in application.sweep("old").root.glob("runs/*/run.json"):
        path.write_text(
            json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != "choices"})
        )
    assert columns_of(command("table", "old"))[0] == "model.width"
    assert "model.width:2" in command("ls", "outputs")
    again = application.run(*words, "hydra.sweeper.quiet=true")
    assert again.status == 0 and len(application.started()) == 2
    assert columns_of(command("table", "old"))[0] == "model"
    assert "1 of 2 runs matches model==big." in command("table", "old", "--where", "model==big")


OWN_SWEEP = """
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from runmanager import RunManager


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg):
    folder = Path(HydraConfig.get().runtime.output_dir)
    (folder / "metrics.csv").write_text("epoch,val_loss\\n0,1.5\\n1,0.5\\n")
    manager = RunManager("outputs/loop", console=False)
    manager.run({"model": OmegaConf.to_container(cfg.model)}).end()


main()
"""


def test_choices_of_hydras_own_multirun_are_recorded_by_a_loop_and_adopted(
    application: Application, command: Callable[..., str], write_script: Callable[[str, str], None]
) -> None:
    write_script("own.py", OWN_SWEEP)
    words = ("model=small,big", "hydra.sweep.dir=multirun")
    subprocess.run([sys.executable, "own.py", "-m", *words], cwd=application.folder, check=True, capture_output=True)
    command("adopt", "multirun", "--name", "adopted")
    for name in ("loop", "adopted"):
        assert columns_of(command("table", name))[0] == "model"
        assert "1 of 2 runs matches model==big." in command("table", name, "--where", "model==big")
        assert {record.choices["model"] for record in application.records(name)} == {"small", "big"}
    assert command("ls", "outputs").count(" model:2 ") == 2
