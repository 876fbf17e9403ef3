"""Stored sweeps whose every text is hostile to a terminal, a shell, or a file format, and the commands that show them.

`Place.cases` names arguments for each command of the command line; each choice of an option like `--format` is added.
"""

import enum
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from runmanager.cli.main import app
from runmanager.records.files.atomic_files import replace_file
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import Environment, EpochRecord, RunRecord
from runmanager.records.run.status import Reason, Status
from runmanager.records.settings.signature import readable_name, short_signature, signature
from runmanager.records.storage.labels import Labels, SweepLabels
from runmanager.records.storage.ownership import claim_run
from runmanager.records.storage.versioned_file import encode_record
from runmanager.records.sweep.sweep_record import SweepCommand, plan_cell, write_cells

__all__ = ["AXIS", "CHOICES", "COMMANDS", "HOSTILE", "METRIC", "WORDS", "Place"]

ESCAPES = "\x1b[58;5;9m\x1b]2;title\x07\x9b2J\x9d8;;http://e\x9c\x7f\x08"  # none that this program sends itself
HOSTILE = (
    f"esc{ESCAPES}",
    "line\rfeed\r\n\nfinished  a\tb\x0b\x0c\x1c\x85",
    "bidi\u202egnp\u2066x\u2069\u200f\u061c\u05d0\u05d1",
    "none\u200b\u200d\ufeff\u2060\u00ad\u034f\u180e\u3164\u2800\U000e0041\ufe0f\U000e0100\ue000\u00a0\u2028\u2029",
    f"\u0338z{'e' + chr(0x301) * 40}漢字かな\uff9e",
    "null\x00\ufffe\uffff",
    "[red]x[/red][/][link=http://e]y[/link] :smile: $\\frac{1$ %s {0} %(a)s ${x} {{y}}",
    '|a|b\\|`c``d [x](http://e) ![i](http://e) <b onclick="e">&amp; <!-- *c* _d_ # h @name',
    "%x_y&z#^{}~\\input{/etc/passwd}\\\\ ^^M",
    '"lone',
    " lead and trail ",
    "=1+1",
    "@SUM(A1)",
    "-1+1",
    "x" * 7000,
)
AXIS = "k\r\x1b[58;5;9m\u202e|[red]$_{`=\x00\u0301"
METRIC = "m\r\x1b[58;5;9m\u202e|[red]$_{`="
ALL = " ".join(HOSTILE[:-1])
WORDS = (
    *("=ls", "~", "*", "?", "[a]", "{a,b}", "!x", "^a", "#c", "%1", "$(id)", "`id`", "it's", "a;b&c|d>e<f", ""),
    *(text for text in HOSTILE if "\0" not in text),
)
_PRINTABLE = "=ls {a,b} ~ !x $(id) `t`` [red] 'q' \"*?#%^|_\\ <b> @name e\u0301漢 $x$"
SWEEPS = (f"{_PRINTABLE}1", "=second")

COMMANDS: Mapping[str, object] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
CHOICES = {
    name: {
        option.opts[0]: [each.value for each in option.type_descriptor.annotation if each != option.default]
        for option in command.params  # type: ignore[attr-defined]
        if isinstance(option.type_descriptor.annotation, enum.EnumType) and option.opts[0].startswith("--")
    }
    for name, command in COMMANDS.items()
}
"""The values, but for the default, that each command's options can have where they are few, by command and option."""


@dataclass(frozen=True)
class Place:
    """A working folder with a hostile name, and two sweeps in `outputs/`."""

    folder: Path

    @classmethod
    def made_in(cls, parent: Path) -> "Place":
        folder = parent / os.fsdecode(b"w\x1b[58;5;9m\r\xe2\x80\xae$x=' |`[red]\xff")
        place = cls(folder)
        for name, values in zip(SWEEPS, (HOSTILE, HOSTILE[::4]), strict=True):
            _write_sweep(SweepPaths(folder / "outputs" / name), values)
        for name in ("kept", "removed"):
            _write_sweep(SweepPaths(folder / "outputs" / f"{name} {_PRINTABLE}"), HOSTILE[:2])
        _write_events(folder / "events")
        _write_hydra_run(folder / "multirun")
        (folder / "train it's.py").write_text(_SCRIPT)
        return place

    def cases(self) -> dict[str, list[list[str]]]:
        """The arguments of each command, those that change a sweep last."""
        one, two = SWEEPS
        whole = os.fspath(self.folder / "outputs" / one)
        run, other = self._runs(one)
        bad, script = HOSTILE[3], "train it's.py"
        texts = ",".join(f"'{text}'" for text in ("a\x1b[58;5;9mb", "c\u202ed|`e", "=ls!x [red]$y"))
        cases = {
            "ls": [[], [os.fspath(self.folder / "outputs"), "--where", bad]],
            "table": [
                *([one], [whole, "--each"], [one, two], ["events", "--events"], [one, "--work"], [bad]),
                *([one, "--columns", f"settings.{AXIS.replace(chr(0), '')}"], [one, "--pivot", "seed:lr"]),
                [one, "--where", bad],
            ],
            "compare": [
                *([one, "--fail-if", "slower:3%"], [one, two], [one, "--axis", "seed", "--metric", METRIC, "--all"]),
                *([one, bad], [one, two, "--fail-if", "slower:3%", "--metric", METRIC]),
            ],
            "best": [[one], [one, two, "--metric", METRIC, "--better", "max"], [one, "--metric", bad]],
            "show": [[run], [other], [one, f"seed={bad}"], [bad]],
            "diff": [[run, other]],
            "reproduce": [[run]],
            "report": [[two], [one, two, "--open"]],
            "export": [[two]],
            "adopt": [["multirun", "--name", f"adopted {_PRINTABLE}"], [bad]],
            "tag": [[two, _PRINTABLE.replace(",", ""), "e\u0301"], [run, bad], [two, "--remove", bad]],
            "note": [[two, _PRINTABLE], [run, bad]],
            "watch": [[one, "--once"], [one]],
            "scalars": [[run], [run, "--format", "json"], [bad]],
            "schema": [["run"], [bad]],
            "tensorboard": [[one, "--port", "0"]],
            "ui": [[os.fspath(self.folder), "--port", "0", "--no-open"], [bad]],
            "doctor": [["--output-root", os.fspath(self.folder / "outputs")]],
            "help": [["lr"], [bad]],
            "sweep": [
                ["--name", f"made {_PRINTABLE}", script, f"text={texts}", f"fail={texts}"],
                ["--name", f"made {_PRINTABLE}", "--dry-run", script, f"text={texts}", "fail=1"],
                *([script, "--name", bad], ["lr=0.1", f"name={ALL.replace(chr(0), '')}"], ["-\x1b[58;5;9m"]),
            ],
            "run": [["--name", f"run {_PRINTABLE}", "--dry-run", script, "text='\x1b[58;5;9m'"], [bad]],
            "demo": [[bad]],
            "duel": [[f"lr={bad}", "lr=0.1"], [f"note={bad}", f"note={bad}x", f"note={bad}"]],
            "tune": [[bad]],
            "mv": [[f"kept {_PRINTABLE}", f"moved {_PRINTABLE}"], [one, bad]],
            "rm": [[f"removed {_PRINTABLE}"], [f"removed {_PRINTABLE}", "--yes"], [bad], ["--empty-trash", "--yes"]],
        }
        return {name: self._with_choices(name, of_command) for name, of_command in cases.items()}

    def _runs(self, sweep: str) -> tuple[str, str]:
        names = sorted(each.name for each in SweepPaths(self.folder / "outputs" / sweep).runs.iterdir())
        return f"{sweep}/{names[0].rpartition('-')[2]}", f"{sweep}/{names[1].rpartition('-')[2]}"

    @staticmethod
    def _with_choices(name: str, of_command: Sequence[list[str]]) -> list[list[str]]:
        """The arguments, and those that are not refused with each choice; an option that must be given is added."""
        choices = [[option, value] for option, values in CHOICES[name].items() for value in values]
        if name == "export":
            return [[*words, *chosen] for words in of_command for chosen in choices]
        return [*of_command, *([*of_command[0], *chosen] for chosen in choices)]


def _write_sweep(paths: SweepPaths, values: Sequence[str]) -> None:
    configs = [
        {AXIS: value, "lr": 0.1, "seed": seed, "group": {HOSTILE[1]: HOSTILE[0]}, "list": list(HOSTILE[:3])}
        for value in values
        for seed in ((1, 2) if value in HOSTILE[:2] else (1,))
    ]
    cells = []
    for number, config in enumerate(configs):
        signed = signature(config)
        name = f"{readable_name({AXIS: config[AXIS], 'seed': config['seed']})}-{short_signature(signed)}"
        cells.append(plan_cell(signed, name, config))
        has_failed = number == 1
        run = claim_run(
            paths.run(name),
            RunRecord(
                name=name,
                signature=signed,
                status=Status.FAILED if has_failed else Status.FINISHED,
                reason=Reason.EXCEPTION if has_failed else None,
                message=ALL if has_failed else "",
                config=config,
                started_at=f"2026-11-01T10:{number:02}:00+00:00",
                ended_at=f"2026-11-01T10:{number:02}:30+00:00",
                run_seconds=30.0 + number,
                owner=ProcessIdentity.current(),
                environment=_environment(number),
                notes=(ALL, *HOSTILE),
                deviations=(ALL,),
                summary={METRIC: 0.5 + number, "accuracy": 0.5},
                origins={METRIC: ALL},
                cell_command=("runmanager", "run", *WORDS),
                session=ALL,
            ),
        )
        for epoch in () if has_failed else range(1, 5):
            seconds = 1.0 + number / 10 + epoch / 100
            run.append(
                EpochRecord(
                    epoch=epoch,
                    loss=0.5,
                    val_accuracy=0.5 + number / 100,
                    epoch_seconds=seconds,
                    wall_seconds=seconds,
                    samples=1000,
                    metrics={METRIC: float(number), f"{METRIC}2": 1.0},
                    units={f"u{METRIC}": 1000},
                )
            )
        run.close()
        paths.run(name).log.write_bytes(ALL.encode() + b"\xff\n" + ALL.encode())
        if has_failed:
            paths.run(name).error.write_bytes(ALL.encode() + b"\xff")
    write_cells(paths, cells, SweepCommand(["runmanager", "sweep", *WORDS], axes={AXIS: list(values), "seed": [1, 2]}))
    labels = Labels((ALL, "=1+1"), ALL)
    replace_file(paths.labels, encode_record(SweepLabels(tags=labels.tags, note=labels.note, runs={name: labels})))


def _environment(number: int) -> Environment:
    return Environment(
        host=ALL,
        cpu_model=ALL,
        device_name=ALL,
        driver=ALL,
        cuda=ALL,
        python=ALL,
        libraries={ALL: f"{ALL}{number}"},
        commit=f"{HOSTILE[number % 9]}$(id)",
        commit_clean=False,
        code={ALL: str(number)},
        command=WORDS,
        torch_threads=1,
    )


def _write_events(folder: Path) -> None:
    for name in ("a [red]|`", "b\x1b[58;5;9m\u202e"):
        path = folder / name / "events.out.tfevents.1"
        path.parent.mkdir(parents=True)
        with path.open("wb") as file:
            for tag in (METRIC, *HOSTILE[:4], *HOSTILE[6:9]):
                found = Summary(value=[Summary.Value(tag=tag, simple_value=0.5)])
                RecordWriter(file).write(Event(wall_time=1.0, step=1, summary=found).SerializeToString())


def _write_hydra_run(folder: Path) -> None:
    for number in (0, 1):
        job = folder / str(number)
        (job / ".hydra").mkdir(parents=True)
        (job / ".hydra" / "config.yaml").write_text(json.dumps({"a": HOSTILE[number], "b": {HOSTILE[2]: 1}}))
        (job / ".hydra" / "overrides.yaml").write_text(json.dumps([f"a={HOSTILE[number]}"]))
        (job / ".hydra" / "hydra.yaml").write_text("hydra: {job: {name: app}}")
        (job / "metrics.csv").write_text(f'step,loss,"{HOSTILE[0]}","{HOSTILE[6]}"\n1,0.5,0.5,0.5\n')


_SCRIPT = r"""
import argparse, sys
parser = argparse.ArgumentParser()
parser.add_argument("--text")
parser.add_argument("--fail", default="")
words = parser.parse_args()
print("score=0.5", words.text)
sys.stdout.buffer.write(b"\x1b[58;5;9m\xff\r\xe2\x80\xae\n")
if words.fail.startswith("c"):
    raise ValueError("\x1b[58;5;9m \u202e \r " + words.fail)
"""
