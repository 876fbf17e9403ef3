"""The check of settings by the parsers of real scripts, one for each library, and what it does not call."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from runmanager.app.programs.script.arguments.setting_words import argument_faults, make_arguments, parse_settings
from runmanager.app.programs.script.flag_check import check_flags, flags_of
from runmanager.app.programs.script.script import Script, find_script
from runmanager.errors import ConfigurationError

from .argument_scripts import SCRIPTS, SHOW


def written(folder: Path, source: str) -> Script:
    (folder / "train.py").write_text(source)
    return find_script("train.py", is_module=False, folder=folder)


def call(script: Script, arguments: Sequence[str]) -> str:
    done = subprocess.run([*script.command, *arguments], cwd=script.folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("library", SCRIPTS)
def test_every_library_gets_what_the_settings_say(library: str, tmp_path: Path) -> None:
    script = written(tmp_path, SHOW + SCRIPTS[library])
    size = "batch-size" if library in ("argparse", "click", "typer", "tyro") else "batch_size"
    check = check_flags(script, ["lr", size, "shuffle"])
    assert check.note == "" and check.parser is not None
    for shuffle in (True, False):
        (cell,) = parse_settings(["lr=0.25", f"{size}=4", f"shuffle={str(shuffle).lower()}"]).combinations()
        assert json.loads(call(script, make_arguments(cell, parser=check.parser))) == [0.25, 4, shuffle]
    with pytest.raises(ConfigurationError) as error:
        check_flags(script, ["lr", "batchsize", "rte"])
    assert [fault.partition(" must")[0] for fault in error.value.faults] == ["`batchsize`", "`rte`"]
    assert f"'--{size}'" in error.value.faults[0]


def test_the_forms_of_true_and_false_follow_the_help(tmp_path: Path) -> None:
    script = written(
        tmp_path,
        "import argparse, json, sys\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--both', action=argparse.BooleanOptionalAction)\n"
        "parser.add_argument('--bare', action='store_true')\n"
        "parser.add_argument('--maybe', nargs='?', const='given')\n"
        "parser.add_argument('--value')\n"
        "parser.parse_args()\n"
        "print(json.dumps(sys.argv[1:]))\n",
    )
    parser = check_flags(script, []).parser
    forms = {}
    for value in ("true", "false", "True"):
        (cell,) = parse_settings([f"{name}={value}" for name in ("both", "bare", "maybe", "value")]).combinations()
        forms[value] = make_arguments(cell, parser=parser)
    assert forms["true"] == ["--both", "--bare", "--maybe", "--value=true"]
    assert forms["false"] == ["--no-both", "--maybe=false", "--value=false"]
    assert forms["True"] == ["--both=True", "--bare=True", "--maybe=True", "--value=True"]
    for value in ("true", "false"):
        call(script, forms[value])


REQUIRES = """
import argparse
parser = argparse.ArgumentParser(prog="a (long) name of this program that makes the usage wrap")
parser.add_argument("--data", "-d", required=True, help="not --other")
parser.add_argument("--out-dir", required=True, choices=["a", "b"])
parser.add_argument("--lr", nargs="*", metavar="RATE")
group = parser.add_mutually_exclusive_group(required=True)
group.add_argument("--small")
group.add_argument("--large")
parser.parse_args()
"""


def test_a_flag_that_the_script_requires_must_be_given(tmp_path: Path) -> None:
    script = written(tmp_path, REQUIRES)
    with pytest.raises(ConfigurationError) as error:
        check_flags(script, iter(["lr", "small"]))
    assert [fault.partition(", as ")[0] for fault in error.value.faults] == [
        "`data` must be given",
        "`out-dir` must be given",
    ]
    assert "train.py requires it, got none; add data=…" in error.value.faults[0]
    for names, fixed in (
        (["data", "out-dir"], []),
        (["data"], ["--out-dir=a"]),
        (["out-dir"], ["--dat", "x"]),  # argparse takes abbreviations
        (["out-dir"], ["-d", "x"]),
        (["lr"], ["@arguments.txt"]),
    ):
        assert check_flags(script, names, fixed=fixed).parser is not None


PARSER = "import argparse\nparser = argparse.ArgumentParser({})\n{}\nparser.parse_args()\n"


def test_a_required_flag_with_a_negative_one_is_given_by_either(tmp_path: Path) -> None:
    script = written(
        tmp_path,
        PARSER.format(
            "",
            "parser.add_argument('--cache', action=argparse.BooleanOptionalAction, required=True)\n"
            "parser.add_argument('-s', '--shuffle', action=argparse.BooleanOptionalAction, required=True)\n"
            "parser.add_argument('--sizes', nargs='+', required=True)\n"
            "parser.add_argument('--range', nargs=2, metavar=('[A', 'B)'), required=True)\n"
            "parser.add_argument('--lr', metavar='[0,1)')\n"
            "parser.add_argument('file-name', nargs='*')",
        ),
    )
    with pytest.raises(ConfigurationError) as error:
        check_flags(script, ["lr"])
    assert [fault.partition(" must be given")[0] for fault in error.value.faults] == [
        "`cache`",
        "`shuffle`",
        "`sizes`",
        "`range`",
    ]
    assert check_flags(script, ["cache", "sizes", "range"], fixed=["--no-shuffle"]).parser is not None
    assert check_flags(script, ["no-cache", "shuffle", "sizes", "range"]).parser is not None


def test_a_configuration_may_stand_for_required_flags(tmp_path: Path) -> None:
    source = (
        "import argparse, sys\nparser = argparse.ArgumentParser()\nparser.add_argument('--config')\n"
        "parser.add_argument('--data', required='--config' not in ' '.join(sys.argv))\nparser.parse_args()\n"
    )
    script = written(tmp_path, source)
    assert check_flags(script, ["config"]).parser is not None
    assert check_flags(script, [], fixed=["--config=a.yaml"]).parser is not None
    with pytest.raises(ConfigurationError, match="`data` must be given"):
        check_flags(script, [])


MENTIONS = {
    "argparse": """
import argparse
parser = argparse.ArgumentParser(description="see --rate", epilog="--decay is not")
parser.add_argument("--lr", help="replaces --momentum")
parser.parse_args()
""",
    "click": """
import click
@click.command(epilog="see --rate")
@click.option("--lr", required=True, help="or --momentum")
def main(lr):
    "Ignores --decay."
main()
""",
    "typer": """
import typer
from typing import Annotated
def main(lr: Annotated[float, typer.Option(help="or --momentum")]):
    "Ignores --decay and --rate."
typer.run(main)
""",
}


@pytest.mark.parametrize("library", MENTIONS)
def test_a_flag_that_the_help_only_mentions_is_unknown(library: str, tmp_path: Path) -> None:
    script = written(tmp_path, MENTIONS[library])
    assert check_flags(script, ["lr"]).parser is not None
    with pytest.raises(ConfigurationError) as error:
        check_flags(script, ["momentum", "rate", "decay"])
    assert len([fault for fault in error.value.faults if "got an unknown one" in fault]) == 3


CHOICES = {
    "argparse": """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--kind", "-k", choices=["small", "large"], help="not {tiny}")
parser.add_argument("--bits", type=int, choices=[4, 8], nargs="+")
parser.add_argument("--rate", type=float, choices=[0.1, 1e-5], nargs="?")
parser.parse_args()
""",
    "click": """
import click
@click.command()
@click.option("-k", "--kind", type=click.Choice(["small", "large"]), default="small", show_default=True, help="K")
@click.option("--bits", type=click.Choice(["4", "8"]), multiple=True)
@click.option("--rate", type=click.Choice(["0.1", "0.00001"]))
@click.option("--day", type=click.DateTime(["%Y-%m-%d", "%Y"]))
def main(**options): pass
main()
""",
    "typer": """
import enum, typer
Kind = enum.Enum("Kind", {"a": "small", "b": "large"}, type=str)
Bits = enum.Enum("Bits", {"a": "4", "b": "8"}, type=str)
Rate = enum.Enum("Rate", {"a": "0.1", "b": "0.00001"}, type=str)
def main(kind: Kind = Kind.a, bits: Bits = Bits.a, rate: Rate = Rate.a): pass
typer.run(main)
""",
    "tyro": """
import tyro
from typing import Literal
def main(kind: Literal["small", "large"] = "small", bits: Literal[4, 8] = 4, rate: Literal["0.1", "0.00001"] = "0.1"):
    pass
tyro.cli(main)
""",
    "absl": """
from absl import app, flags
flags.DEFINE_enum("kind", "small", ["small", "large"], "which <kind>")
flags.DEFINE_enum("bits", "4", ["4", "8"], "how many")
flags.DEFINE_enum("rate", "0.1", ["0.1", "0.00001"], "rate")
app.run(lambda _: None)
""",
}


@pytest.mark.parametrize("library", CHOICES)
def test_a_value_that_is_none_of_the_choices_of_the_help_is_refused(library: str, tmp_path: Path) -> None:
    parser = check_flags(written(tmp_path, CHOICES[library]), ["kind", "bits", "rate"]).parser

    def faults(*words: str) -> list[str]:
        (cell,) = parse_settings(words).combinations()
        return argument_faults(cell, None, parser)

    assert faults("kind=medium", "bits=8", "rate=1e-5") == [
        "`kind` must be one of small, large, as the script's help says, got medium (--unchecked skips this check)."
    ]
    assert [fault.partition(" must")[0] for fault in faults("kind=large", "bits=16", "rate=0.2")] == [
        "`bits`",
        "`rate`",
    ]
    assert faults("kind=Small", "bits=4", "day=2026-01-31") == [], "a script may ignore case"


def test_many_choices_are_not_listed_but_the_nearest_is_named(tmp_path: Path) -> None:
    source = "import argparse\nparser = argparse.ArgumentParser()\n"
    source += "parser.add_argument('--model', choices=[f'resnet{size}' for size in range(300)])\nparser.parse_args()\n"
    (cell,) = parse_settings(["model=resnet2990"]).combinations()
    assert argument_faults(cell, None, check_flags(written(tmp_path, source), ["model"]).parser) == [
        "`model` must be one of 300 choices, as the script's help says, got resnet2990; did you mean 'resnet299'? "
        "(--unchecked skips this check)."
    ]


def test_choices_that_are_not_the_texts_that_a_script_takes_are_not_checked(tmp_path: Path) -> None:
    source = (
        "import argparse, enum\n"
        "Kind = enum.Enum('Kind', {'SMALL': 'small', 'LARGE': 'large'})\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--kind', type=Kind, choices=list(Kind))\n"
        "parser.add_argument('--fast', type=lambda text: text == 'yes', choices=[True, False])\n"
        "metavars = '{a,b}|N', '{a,b,...}', '{a, b}', '<int|auto>', '[auto|N]', 'auto|N', '{auto,N}', '[a|b]'\n"
        "for number, metavar in enumerate(metavars):\n"
        "    parser.add_argument(f'--any{number}', metavar=metavar)\n"
        "parser.parse_args()\n"
    )
    script = written(tmp_path, source)
    any_of_them = [f"any{number}=3" for number in range(8)]
    (cell,) = parse_settings(["kind=small", "fast=yes", *any_of_them]).combinations()
    parser = check_flags(script, list(cell)).parser
    assert parser is not None and argument_faults(cell, None, parser) == []
    call(script, make_arguments(cell, parser=parser))


def test_a_subcommand_is_asked_for_its_own_help(tmp_path: Path) -> None:
    script = written(
        tmp_path,
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "train = parser.add_subparsers(required=True).add_parser('train')\n"
        "train.add_argument('--epochs')\n"
        "parser.parse_args()\n",
    )
    assert check_flags(script, ["epochs"], fixed=["train"]).parser is not None
    with pytest.raises(ConfigurationError, match=r"`epochs` must be a flag of train\.py"):
        check_flags(script, ["epochs"])
    assert check_flags(script, ["epochs"], unchecked=True).note == ""


NESTED = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.add_argument("--verbose", action="store_true")
model = parser.add_subparsers().add_parser("model").add_subparsers()
train = model.add_parser("train")
train.add_argument("out", type=argparse.FileType("w"))
train.add_argument("--epochs")
parser.parse_args()
"""


def test_an_option_of_this_command_in_the_place_of_a_setting_is_named(tmp_path: Path) -> None:
    script = written(tmp_path, NESTED)
    with pytest.raises(ConfigurationError, match=r"an unknown one; the option of runmanager is written --output-root"):
        check_flags(script, ["output_root"], fixed=["model", "train"])


def test_nothing_but_help_is_passed_to_the_script(tmp_path: Path) -> None:
    script = written(tmp_path, NESTED)
    (tmp_path / "out").write_text("of a week")
    fixed = ["--verbose", "--data", "d", "model", "train", "out"]
    parser = check_flags(script, ["epochs"], fixed=fixed).parser
    assert parser is not None and "--epochs" in parser.flags and "--data" not in parser.flags
    with pytest.raises(ConfigurationError, match=r"`epoch` must be a flag of train\.py"):
        check_flags(script, ["epoch"], fixed=fixed)
    assert (tmp_path / "out").read_text() == "of a week"
    assert flags_of(script) == {"--data", "--verbose"} and flags_of(script, fixed) == {"--epochs"}


GROUP = """
import click
@click.group()
@click.option("--data", required=True)
def main(data): pass
@main.command()
@click.option("--epochs")
def train(epochs): pass
main()
"""


def test_a_subcommand_is_known_without_the_arguments_that_stand_before_it(tmp_path: Path) -> None:
    script = written(tmp_path, GROUP)
    assert check_flags(script, ["epochs"], fixed=["--data", "train", "train"]).parser is not None
    with pytest.raises(ConfigurationError, match=r"`epochs` must be a flag"):
        check_flags(script, ["epochs"], fixed=["--data", "d"])


TRAINS = "import pathlib, sys\npathlib.Path('trained').touch()\nprint('usage: none of your business')\n"


@pytest.mark.parametrize(
    "source",
    [
        TRAINS + "settings = dict(word.split('=') for word in sys.argv[1:])",
        # A local module with a parser of its own, for its own use as a script.
        "import helper\n" + TRAINS,
        # Imported, but for another purpose; a parser without a help that takes whatever it is given.
        "from argparse import Namespace\nimport click\nclick.echo('a')\n" + TRAINS,
        "import argparse\nargparse.ArgumentParser(add_help=False).parse_known_args()\n" + TRAINS,
    ],
    ids=["own parser", "helper", "other use", "no help"],
)
def test_a_script_that_may_ignore_the_question_is_not_asked(source: str, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text(
        "import argparse\nif __name__ == '__main__':\n    argparse.ArgumentParser().parse_args()\n"
    )
    check = check_flags(written(tmp_path, source), ["anything"])
    assert check.parser is None and "not checked" in check.note
    assert not (tmp_path / "trained").exists()


def test_a_parser_in_a_local_module_counts(tmp_path: Path) -> None:
    (tmp_path / "options").mkdir()
    (tmp_path / "options" / "parser.py").write_text(
        "from argparse import ArgumentParser as Parser\ndef read():\n"
        "    parser = Parser()\n    parser.add_argument('--depth')\n    return parser.parse_args()\n"
    )
    script = written(tmp_path, "from options import parser\nparser.read()\n" + TRAINS)
    check_flags(script, ["depth"])
    with pytest.raises(ConfigurationError, match="'--depth'"):
        check_flags(script, ["depht"])
    assert not (tmp_path / "trained").exists()


def test_the_question_has_no_gpu_no_input_and_an_end(tmp_path: Path) -> None:
    script = written(
        tmp_path,
        "import argparse, os, sys\n"
        "assert os.environ['CUDA_VISIBLE_DEVICES'] == '' and sys.stdin.read() == ''\n"
        "assert os.getsid(0) == os.getpid()\n"
        "parser = argparse.ArgumentParser(usage='mine')\n"
        "parser.add_argument('--lr')\n"
        "parser.parse_args()\n",
    )
    assert flags_of(script) == {"--lr"}

    started = "import argparse, subprocess, time\nsubprocess.Popen(['sleep', '600'])\ntime.sleep(600)\n"
    late = check_flags(written(tmp_path, started + "argparse.ArgumentParser()"), ["lr"], seconds=0.5)
    assert late.parser is None and "did not answer" in late.note


def test_a_script_that_shows_no_parser_is_a_note(tmp_path: Path) -> None:
    failing = check_flags(written(tmp_path, "import argparse\nargparse.ArgumentParser\nraise OSError"), ["lr"])
    assert failing.parser is None and "it fails with --help: OSError." in failing.note
    odd = "import argparse\nparser = argparse.ArgumentParser()\nparser._actions.append(1)\nparser.parse_args()"
    failing = check_flags(written(tmp_path, odd), ["lr"])
    assert failing.parser is None and "it fails with --help: AttributeError: 'int' object" in failing.note
    usage = "import argparse\nargparse.ArgumentParser\nprint('usage: train [--lr LR]')"
    silent = check_flags(written(tmp_path, usage), ["lr"])
    assert silent.parser is None and "it does not show what reads them" in silent.note


READS = """
import argparse, atexit, pathlib
trained = lambda: pathlib.Path('trained').touch()
atexit.register(trained)
first = argparse.ArgumentParser(add_help=False)
first.add_argument('--preset')
_, rest = first.parse_known_args()
parser = argparse.ArgumentParser()
parser.add_argument('--lr')
parser.add_argument('--secret', help=argparse.SUPPRESS)
try:
    parser.parse_args(rest)
except BaseException:
    trained()
"""


def test_a_script_ends_at_its_parser_and_shows_all_that_it_reads(tmp_path: Path) -> None:
    script = written(tmp_path, READS)
    assert flags_of(script) == {"--preset", "--lr", "--secret"}
    assert not (tmp_path / "trained").exists()


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_settings_of_lightning_cli_are_checked_in_its_subcommand(package: str, tmp_path: Path) -> None:
    source = f"from {package} import LightningModule\nfrom {package}.cli import LightningCLI\n"
    source += "class Net(LightningModule):\n    def __init__(self, lr: float = 0.1):\n        super().__init__()\n"
    script = written(tmp_path, source + "LightningCLI(Net)\n")
    known = ["model.lr", "trainer.max_epochs", "trainer.logger.save_dir", "seed_everything"]
    parser = check_flags(script, known, fixed=["fit"]).parser
    assert parser is not None and parser.find("trainer.default_root_dir") is not None
    with pytest.raises(ConfigurationError) as error:
        check_flags(script, ["model.lrr", "trainer.max_epoch"], fixed=["fit"])
    assert [fault.partition(" must")[0] for fault in error.value.faults] == ["`model.lrr`", "`trainer.max_epoch`"]


@pytest.mark.parametrize(
    "reads",
    [
        "argparse.ArgumentParser(parents=[parser], add_help=False).parse_args()",
        "parser.parse_intermixed_args()",
        "parser.parse_args(__import__('sys').argv[1:])",
        "type('Own', (argparse.ArgumentParser,), {})(parents=[parser]).parse_known_args(args=None)",
    ],
)
def test_every_way_to_read_the_arguments_is_seen(reads: str, tmp_path: Path) -> None:
    parser = "parser = argparse.ArgumentParser(add_help=False)\nparser.add_argument('--lr')\n"
    script = written(tmp_path, f"import argparse\n{parser}{reads}\nargparse.ArgumentParser()\n")
    assert flags_of(script) == {"--lr"}


def test_a_module_of_another_interpreter_is_started_as_it_will_be(tmp_path: Path) -> None:
    package = tmp_path / "own"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "helper.py").write_text("name = '--from-helper'")
    (package / "train.py").write_text(
        "import argparse, os, sys\nfrom .helper import name\nparser = argparse.ArgumentParser()\n"
        "assert sys.argv == [__file__, '--help'] and sys.path[0] == os.getcwd()\n"
        "assert __name__ == '__main__' and sys.modules['__main__'].parser is parser\n"
        "try:\n    import runmanager\nexcept ImportError:\n    parser.add_argument(name)\nparser.parse_args()\n"
    )
    python = tmp_path / "python"  # without the packages of this one
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    script = find_script("own.train", is_module=True, python=str(python), folder=tmp_path)
    assert flags_of(script) == {"--from-helper"}


def test_a_script_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    from runmanager.errors import UsageError

    for word, is_module, python in (("a.py", False, None), ("no_such.module", True, None), ("train.py", False, "none")):
        (tmp_path / "train.py").touch()
        with pytest.raises(UsageError):
            find_script(word, is_module=is_module, python=python, folder=tmp_path)


def test_modules_and_packages_are_found_without_importing_them(tmp_path: Path) -> None:
    package = tmp_path / "own" / "inner"
    package.mkdir(parents=True)
    for file in (package.parent / "__init__.py", package / "__init__.py"):
        file.write_text("raise ImportError")
    (package / "train.py").write_text("")
    (package / "__main__.py").write_text("")
    module = find_script("own.inner.train", is_module=True, folder=tmp_path)
    assert (module.file, module.package) == (package / "train.py", "own.inner")
    assert module.command == [sys.executable, "-m", "own.inner.train"]
    whole = find_script("own.inner", is_module=True, folder=tmp_path)
    assert (whole.file, whole.package) == (package / "__main__.py", "own.inner")
