"""Settings by what a script's parser knows: names, arguments by position, lists, null; and how they are stored."""

import csv
import json
from pathlib import Path

import pytest

from runmanager.app.programs.script.arguments.script_parser import ScriptParser
from runmanager.app.programs.script.arguments.setting_words import (
    argument_faults,
    as_taken,
    make_arguments,
    parse_settings,
)
from runmanager.app.programs.script.flag_check import check_flags
from runmanager.errors import ConfigurationError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.settings.signature import signature
from runmanager.records.storage.reader import read_sweep

from .conftest import Folder
from .test_flag_check import PARSER, call, written

KNOWS = """
import argparse, json
parser = argparse.ArgumentParser()
parser.add_argument("first")
parser.add_argument("--lr", type=float)
parser.add_argument("--batch-size", "-b", type=int)
parser.add_argument("--weight_decay", type=float)
parser.add_argument("--epochs", dest="num_epochs", type=int)
parser.add_argument("--rate", "--learning-rate")
parser.add_argument("--dims", nargs="+", type=int)
parser.add_argument("--betas", nargs=2, type=float)
parser.add_argument("--tag", action="append")
parser.add_argument("--pair", action="append", nargs=2)
parser.add_argument("--note")
parser.add_argument("--amp", action="store_true")
parser.add_argument("--no-amp", dest="amp", action="store_false")
parser.add_argument("--maybe", nargs="?", const="given")
parser.add_argument("-k")
parser.add_argument("files", nargs="*", choices=["a", "b", "c"], default="a")
print(json.dumps(vars(parser.parse_args())))
"""


def cell_faults(parser: ScriptParser | None, *words: str) -> list[str]:
    (cell,) = parse_settings(words).combinations()
    return argument_faults({name: as_taken(name, each, None, parser) for name, each in cell.items()}, None, parser)


def arguments(parser: ScriptParser | None, *words: str) -> list[str]:
    (cell,) = parse_settings(words).combinations()
    return make_arguments({name: as_taken(name, each, None, parser) for name, each in cell.items()}, parser=parser)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("batch_size=4", ["--batch-size=4"]),
        ("weight-decay=1e-3", ["--weight_decay=1e-3"]),
        ("num_epochs=3", ["--epochs=3"]),
        ("rate=1", ["--rate=1"]),
        ("learning-rate=1", ["--learning-rate=1"]),
        ("dims=[1,2]", ["--dims", "1", "2"]),
        ("dims=[3]", ["--dims", "3"]),
        ("dims=3", ["--dims=3"]),
        ("betas=[1e-1,.5]", ["--betas", "1e-1", ".5"]),
        ("tag=[a,'b c']", ["--tag=a", "--tag=b c"]),
        ("tag=a", ["--tag=a"]),
        ("pair=[[a,b],[c,d]]", ["--pair", "a", "b", "--pair", "c", "d"]),
        ("pair=[a,b]", ["--pair", "a", "b"]),
        ("note=[1,2]", ["--note=[1,2]"]),
        ("note=null", []),
        ("note='null'", ["--note=null"]),
        ("k=4", ["-k", "4"]),
    ],
)
def test_a_setting_becomes_the_arguments_that_the_parser_takes(word: str, expected: list[str], tmp_path: Path) -> None:
    script = written(tmp_path, KNOWS)
    parser = check_flags(script, ["first", word.partition("=")[0]]).parser
    assert cell_faults(parser, word) == []
    given = arguments(parser, word, "first=x")
    assert [each for each in given if each != "x"] == expected
    assert json.loads(call(script, given))["first"] == "x"


def test_arguments_by_position_stand_in_the_order_of_the_parser(tmp_path: Path) -> None:
    script = written(tmp_path, KNOWS)
    parser = check_flags(script, ["files", "maybe", "lr", "first"]).parser
    got = arguments(parser, "files=[a,b]", "maybe=true", "lr=0.1", "first=x")
    assert got == ["--lr=0.1", "x", "a", "b", "--maybe"]
    read = json.loads(call(script, got))
    assert (read["first"], read["files"], read["maybe"]) == ("x", ["a", "b"], "given")


def test_a_name_that_two_flags_may_mean_is_passed_as_written(tmp_path: Path) -> None:
    both = "parser.add_argument('--batch-size', '--batch_size', '--bs', dest='size')"
    parser = check_flags(written(tmp_path, PARSER.format("", both)), ["batch_size"]).parser
    assert arguments(parser, "batch_size=4") == ["--batch_size=4"]
    assert arguments(parser, "batch-size=4") == ["--batch-size=4"]
    with pytest.raises(ConfigurationError, match="`size` must be a flag"):
        check_flags(written(tmp_path, PARSER.format("", both)), ["size"])


def test_what_the_parser_would_refuse_is_refused_before(tmp_path: Path) -> None:
    script = written(tmp_path, KNOWS)
    with pytest.raises(ConfigurationError) as error:
        check_flags(script, ["lr", "batch_size", "batch-size", "fist"])
    assert [fault.partition(" (--un")[0] for fault in error.value.faults] == [
        "`fist` must be a flag of train.py, got an unknown one; did you mean 'first'?",
        "`batch-size` must be given once, got `batch_size` too; train.py knows both as --batch-size.",
        "`first` must be given, as train.py requires it, got none; add first=…",
    ]
    parser = check_flags(script, [], fixed=["--dims", "1", "2", "--lr", "1", "x"]).parser
    words = (
        "lr=[0.1,0.01]",
        "betas=[1]",
        "dims=[]",
        "files=[a,d]",
        "first=null",
        "note=[1,2]",
        "betas=1",
        "dims='1 2'",
        "lr=x",
    )
    words += ("amp=0", "amp=false")
    told = [fault for word in words for fault in cell_faults(parser, word)]
    assert [fault.partition(" (--un")[0] for fault in told] == [
        "`lr` must be one number, as the script's help says, got [0.1,0.01]; several values are written lr=0.1,0.01",
        "`betas` must be a list of 2, as the script's help says, got [1]",
        "`dims` must have at least one value, as the script's help says, got []",
        "`files` must be one of a, b, c, as the script's help says, got d",
        "`first` must be given, as the script requires it, got null",
        "`betas` must be a list of 2, as the script's help says, got 1",
        "`dims` must be a number, as the script's help says, got 1 2; several are written dims=[1,2]",
        "`amp` must be true or false, as the script's help shows a flag, got 0",
    ]


LISTS = {
    "click": """
import click
@click.command()
@click.argument("data")
@click.option("--dims", nargs=2, type=int)
@click.option("--tag", multiple=True)
def main(data, dims, tag): print(data, list(dims), list(tag))
main()
""",
    "typer": """
import typer
def main(data: str, dims: tuple[int, int] = (0, 0), tag: list[str] = []): print(data, list(dims), list(tag))
typer.run(main)
""",
    "tyro": """
import tyro
def main(data: tyro.conf.Positional[str], dims: tuple[int, int] = (0, 0), tag: list[str] = []):
    print(data, list(dims), list(tag))
tyro.cli(main)
""",
    "absl": """
from absl import app, flags
flags.DEFINE_string("data", "", "x")
flags.DEFINE_multi_integer("dims", [], "x")
flags.DEFINE_multi_string("tag", [], "x")
app.run(lambda _: print(flags.FLAGS.data, flags.FLAGS.dims, flags.FLAGS.tag))
""",
    "jsonargparse": """
import jsonargparse
parser = jsonargparse.ArgumentParser()
parser.add_argument("data")
parser.add_argument("--dims", nargs=2, type=int)
parser.add_argument("--tag", type=list[str])
read = parser.parse_args()
print(read.data, read.dims, read.tag)
""",
    "fire": """
import fire
fire.Fire(lambda data, dims, tag: print(data, list(dims), list(tag)))
""",
}


@pytest.mark.parametrize("library", LISTS)
def test_every_library_gets_lists_and_arguments_by_position(library: str, tmp_path: Path) -> None:
    script = written(tmp_path, LISTS[library])
    parser = check_flags(script, ["data", "dims", "tag"]).parser
    assert call(script, arguments(parser, "dims=[1,2]", "tag=[a,b]", "data=x")) == "x [1, 2] ['a', 'b']\n"


COMPONENTS = """
import fire
class Trainer:
    def __init__(self, lr=0.1): pass
    def fit(self, epochs, data="a"): print("fit")
    @staticmethod
    def check(path): print("check")
def evaluate(model="m", **other): pass
fire.Fire({"trainer": Trainer, "evaluate": evaluate})
"""


def test_the_commands_of_fire_are_known(tmp_path: Path) -> None:
    script = written(tmp_path, COMPONENTS)
    assert check_flags(script, ["epochs", "lr"], fixed=["trainer", "fit"]).parser is not None
    assert check_flags(script, ["data"], fixed=["trainer", "fit", "3"]).parser is not None
    assert check_flags(script, ["anything"], fixed=["evaluate"]).parser is not None
    for names, fixed in ((["epochs"], ["trainer", "check"]), (["data"], ["trainer", "fit"]), (["lr"], [])):
        with pytest.raises(ConfigurationError):
            check_flags(script, names, fixed=fixed)


# Keeps what it does not know, as many research scripts do.
TAKES_ALL = """
import argparse, json, sys
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int)
parser.add_argument("--dims", nargs="+")
parser.add_argument("data", nargs="?")
parser.parse_known_args()
print(json.dumps(sys.argv[1:]))
"""


def records_of(folder: Folder, name: str) -> list[RunRecord]:
    return [run.record for run in read_sweep(SweepPaths(folder.path / "outputs" / name)).runs]


def test_cells_are_stored_as_the_help_spells_them_and_shown_as_other_programs_do(folder: Folder) -> None:
    folder.write("train.py", TAKES_ALL)
    named = ("sweep", "--name", "first", "--unsigned", "data", "train.py")
    done = folder.run(*named, "batch_size=8,16", "dims=[1,2],null", "data=x")
    assert done.status == 0, done.err
    records = records_of(folder, "first")
    settings = sorted((each.config["batch-size"], str(each.config["dims"])) for each in records)
    assert settings == [(8, "None"), (8, "[1, 2]"), (16, "None"), (16, "[1, 2]")]
    logs = [SweepPaths(folder.path / "outputs" / "first").run(each.name).log.read_text() for each in records]
    assert sorted(map(json.loads, logs))[:2] == [["--batch-size=16", "x"], ["--batch-size=16", "x", "--dims", "1", "2"]]
    with (folder.path / "outputs" / "first" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["batch_size"] for row in rows) == ["16", "16", "8", "8"] and "batch-size" not in rows[0]
    again = folder.run("sweep", "--dry-run", *named[1:], "batch-size=8,16", "dims=[1,2],null", "data=y")
    assert "4 cells: 4 keep" in again.out, again.out + again.err
    for axis in ("batch_size", "batch-size"):
        compared = folder.run("compare", "first", "--axis", axis, "--metric", "run_seconds")
        assert "must be a setting" not in compared.err, compared.err


def test_cells_stored_under_the_other_spelling_are_found(folder: Folder) -> None:
    folder.write("train.py", TAKES_ALL)
    named = ("sweep", "--name", "old")
    assert folder.run(*named, "--unchecked", "train.py", "batch_size=8", "dims=[1]").status == 0
    (old,) = records_of(folder, "old")
    about = {"script": {"program": "train.py"}}
    assert old.signature == signature({"batch_size": 8, "dims": "[1]"} | about, unsigned=(), later={})

    both = ("train.py", "batch_size=8,16")
    assert folder.run(*named, "--unchecked", "train.py", "batch_size=8").status == 0
    planned = folder.run(*named, "--dry-run", *both)
    assert "2 cells: 1 keep, 1 start" in planned.out, planned.out + planned.err
    assert folder.run(*named, *both).status == 0
    assert all("batch_size" in each.config for each in records_of(folder, "old"))
    # Its arguments are others now.
    assert "1 cell: 1 start" in folder.run(*named, "--dry-run", "train.py", "batch_size=8", "dims=[1]").out

    assert folder.run(*named, "--unchecked", "train.py", "batch-size=32").status == 0
    mixed = folder.run(*named, "--dry-run", "train.py", "batch-size=8,16,32,64")
    assert "4 cells: 3 keep, 1 start" in mixed.out, mixed.out + mixed.err
