"""Write docs/reference/ from the code: `python docs/write_reference.py`. A test fails if its pages are older."""

import importlib
import inspect
import re
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from typer.models import ArgumentInfo, OptionInfo

import runmanager
from runmanager.app.reference.settings_reference import Section, Setting, sections
from runmanager.cli.commands.sweep import DemoCommand, SweepCommand
from runmanager.cli.main import app
from runmanager.text import in_backticks

FOLDER = Path(__file__).resolve().parent / "reference"
NOTE = "`python docs/write_reference.py` writes this page from the code."
RETURNED = {
    "runmanager.tracking.run.ActiveRun": "epochs batches track track_eval evaluating log log_image log_figure log_text "
    "note summary should_stop num_steps dir end",
    "runmanager.tracking.epoch.Epoch": "batches eval_batches phase evaluating track track_eval log",
}
"""Classes whose objects public calls return, with what is for users; the rest is for the package's own job."""
BRIDGES = (
    "runmanager.integrations.lightning.RunManagerLogger",
    "runmanager.integrations.lightning.RunManagerCallback",
    "runmanager.integrations.transformers.RunManagerCallback",
    "runmanager.integrations.accelerate.RunManagerTracker",
)
"""Classes that a framework calls: only their construction is for users."""


def settings_page() -> str:
    """Every setting: a sentence, type, default and values."""
    lines = [
        "# Every setting",
        "",
        f"{NOTE} `runmanager help SETTING`",
        "prints the same of one setting, `runmanager help GROUP` of a group. Losses, metrics, and settings without",
        "effect have [a page of their own](../settings.md).",
    ]
    for section in sections():
        lines += ["", f"## {in_backticks(section.group) if section.group else 'Every run'}", "", section.sentence]
        if section.choices:
            rows = [(in_backticks(f"{section.group}={name}"), text) for name, text in section.choices.items()]
            lines += ["", f"The default is `{section.group}={section.default}`.", "", *table(("choice", "what"), rows)]
        if section.settings:
            lines += ["", *settings_table(section)]
    return page(lines)


def settings_table(section: Section) -> list[str]:
    titles = ["setting", "what it does", "type", "default", "values"]
    has_choices = any(each.choice for each in section.settings)
    rows = [[*facts(each), *([choices(each)] if has_choices else [])] for each in section.settings]
    return table([*titles, *([f"only with `{section.group}=`"] if has_choices else [])], rows)


def facts(setting: Setting) -> list[str]:
    return [in_backticks(setting.key), setting.sentence, setting.type, in_backticks(setting.default), setting.values]


def choices(setting: Setting) -> str:
    return ", ".join(in_backticks(each) for each in setting.choice.split(", "))


def commands_page() -> str:
    """Every command with its arguments and options."""
    lines = ["# Every command", "", f"{NOTE} `runmanager COMMAND --help`"]
    lines += [
        "prints the same, and any command takes `--debug`, which adds the traceback of an error. [Commands on stored"
    ]
    lines += ["runs](../commands.md) shows what many of them print."]
    for each in app.registered_commands:
        assert each.callback is not None
        name = each.name or each.callback.__name__
        parameters = [*command_parameters(each.callback), *getattr(each.cls, "passed_on", {}).items()]
        arguments = [named for named, _ in parameters if not named.startswith("-")]
        taken = each.options_metavar.split()
        usage = " ".join(["runmanager", name, *taken, *(word for word in arguments if word not in taken)])
        lines += ["", f"## {name}", "", inspect.getdoc(each.callback) or "", "", "```text", usage, "```", ""]
        if each.cls in (SweepCommand, DemoCommand) and name != "sweep":
            lines += ["Options: those of [sweep](#sweep) that apply.", ""]
        elif parameters:
            rows = [(in_backticks(words), text) for words, text in parameters]
            lines += [*table(("argument or option", "what it does"), rows), ""]
        lines.append(str(each.epilog))
    return page(lines)


def command_parameters(command: Callable[..., Any]) -> list[tuple[str, str]]:
    """The arguments and options of a command as they are typed, each with its help."""
    rows = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind, *information = get_args(parameter.annotation) or [None]
        for each in information:
            if isinstance(each, ArgumentInfo | OptionInfo):
                rows.append((typed(parameter.name, kind, each), each.help or ""))
    return rows


def typed(name: str, kind: Any, information: ArgumentInfo | OptionInfo) -> str:
    if isinstance(information, ArgumentInfo):
        return information.metavar or name.upper()
    # In an annotation Typer takes the first name for the default.
    given = [each for each in (information.default, *(information.param_decls or ())) if str(each).startswith("-")]
    names = ", ".join(given or [f"--{name.strip('_').replace('_', '-')}"])
    return names if kind is bool else f"{names} {information.metavar or values_text(kind)}"


def values_text(kind: Any) -> str:
    """The values of an option without a metavar: those of an enumeration, else its type."""
    kinds = [each for each in get_args(kind) if each is not type(None)]
    if get_origin(kind) is Literal:
        return "|".join(kinds)
    if kinds:
        return values_text(kinds[0])
    return "|".join(kind) if issubclass(kind, Enum) else {int: "N", float: "NUMBER"}.get(kind, "TEXT")


def api_page() -> str:
    """Every public name of the package with its signature and docstring."""
    lines = ["# Python API", "", NOTE, "[The library](../library.md) explains how these names work together."]
    named = [(f"runmanager.{name}", getattr(runmanager, name)) for name in runmanager.__all__ if name[0] != "_"]
    for name, value in [*sorted(named, key=is_error), *map(imported, RETURNED)]:
        lines += ["", f"## {name}", "", *described(name.rpartition(".")[2], value)]
        for method, function in public_methods(value, RETURNED.get(name, "").split()):
            lines += ["", f"### {name.rpartition('.')[2]}.{method}", "", *described(method, function)]
    for name, value in map(imported, BRIDGES):
        lines += ["", f"## {name}", "", *described(name.rpartition(".")[2], value)]
    return page(lines)


def is_error(named: tuple[str, Any]) -> bool:
    return inspect.isclass(named[1]) and issubclass(named[1], Exception)


def imported(name: str) -> tuple[str, Any]:
    module, _, attribute = name.rpartition(".")
    return name, getattr(importlib.import_module(module), attribute)


def public_methods(owner: Any, chosen: list[str]) -> list[tuple[str, Any]]:
    """The `chosen` methods and properties, else all that this package defines; none of an error."""
    if not inspect.isclass(owner) or issubclass(owner, Exception):
        return []
    bases = [each for each in reversed(owner.__mro__) if each.__module__.startswith("runmanager")]
    found = {name: value for each in bases for name, value in vars(each).items() if name[0] != "_"}
    calls = {name: value for name, value in found.items() if inspect.isroutine(value) or isinstance(value, property)}
    return [(name, calls[name]) for name in chosen or calls]


def described(name: str, value: Any) -> list[str]:
    """The signature as a code block, and the docstring."""
    function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    is_made_by_calls = any(each.endswith(f".{name}") for each in RETURNED)
    has_signature = not isinstance(value, property) and not is_error((name, value)) and not is_made_by_calls
    lines = ["```text", *signature(name, function), "```", ""] if has_signature else []
    return [*lines, inspect.getdoc(function) or ""]


def signature(name: str, function: Any) -> list[str]:
    whole = inspect.signature(function)
    taken = [each for each in whole.parameters.values() if each.name != "self"]
    parameters = [parameter_text(each) for each in taken]
    named = [index for index, each in enumerate(taken) if each.kind is each.KEYWORD_ONLY]
    if named and not any(each.kind is each.VAR_POSITIONAL for each in taken):
        parameters.insert(named[0], "*")
    is_plain = whole.return_annotation in (inspect.Signature.empty, None) or inspect.isclass(function)
    end = "" if is_plain else f" -> {type_text(whole.return_annotation)}"
    line = f"{name}({', '.join(parameters)}){end}"
    return [line] if len(line) <= 110 else [f"{name}(", *(f"    {each}," for each in parameters), f"){end}"]


def parameter_text(parameter: inspect.Parameter) -> str:
    """Format a parameter; a default that is not a plain value is shown as `...`, as its text depends on the process."""
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    annotation = "" if parameter.annotation is parameter.empty else f": {type_text(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return f"{stars}{parameter.name}{annotation}"
    default = "..." if repr(parameter.default).startswith("<") else repr(parameter.default)
    return f"{stars}{parameter.name}{annotation} = {default}"


def type_text(annotation: Any) -> str:
    """Format a type by the last parts of its names, as in the source."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\*<class '(.*?)'>", r"Unpack[\1]", text)
    # Quotes of forward references go, those of choices stay.
    parts = re.split(r"(Literal\[.*?\])", text.replace('"', "'"))
    text = "".join(part if part.startswith("Literal[") else part.replace("'", "") for part in parts)
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)


def table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    cells = [list(titles), *map(list, rows)]
    cells.insert(1, ["---"] * len(cells[0]))
    return [f"| {' | '.join(each.replace('|', chr(92) + '|') for each in row)} |" for row in cells]


def page(lines: Iterable[str]) -> str:
    return "\n".join(line.rstrip() for line in lines) + "\n"


PAGES = {"settings.md": settings_page, "commands.md": commands_page, "api.md": api_page}


def main() -> None:
    """Write every page."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in PAGES.items():
        (FOLDER / name).write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
