"""Runs a script as `python SCRIPT --help` would, up to its own parser, and writes down what that knows.

Any interpreter runs this file by its path: it imports nothing of this package. Its words are the file to write, the
libraries that the script's source uses, and those that start the script. Where a library is met in another way than
this file knows, the script answers to `--help` itself, and nothing is written.
"""

from __future__ import annotations

import argparse
import contextlib
import enum
import functools
import importlib
import inspect
import itertools
import json
import os
import pathlib
import runpy
import sys
import typing

_HELP = "--help"
_MAX_CHOICES = 1000
_MAX_DEPTH = 4  # of the components of fire, which may hold each other

if typing.TYPE_CHECKING:
    _Level = dict[str, typing.Any]  # as `ScriptParser` reads it


class _Watch:
    """Ends this process at the first parser that reads the script's own arguments."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._before: list[_Level] = []  # arguments of parsers that leave `--help` to the next one

    def end(self, describe: typing.Callable[[], _Level]) -> None:
        try:
            level = describe()
            level["arguments"] = self._before + level["arguments"]
            pathlib.Path(self._file).write_text(json.dumps(level), encoding="utf-8")
        except BaseException:
            sys.__excepthook__(*sys.exc_info())
        finally:  # the script may catch what is raised, and go on
            os._exit(0)

    def watch_argparse(self, parsers: typing.Any) -> None:
        """Watch a class of parsers."""
        for name in ("parse_args", "parse_intermixed_args", "parse_known_args", "parse_known_intermixed_args"):
            if name in vars(parsers):
                setattr(parsers, name, self._watched(getattr(parsers, name), leaves_rest="known" in name))

    def _watched(self, parse: typing.Any, *, leaves_rest: bool) -> typing.Any:
        @functools.wraps(parse)
        def watched(parser: typing.Any, args: typing.Any = None, *more: typing.Any, **named: typing.Any) -> typing.Any:
            if _HELP in (sys.argv[1:] if args is None else args):
                if not leaves_rest or _HELP in parser._option_string_actions:
                    self.end(lambda: _of_argparse(parser))
                self._before += _of_argparse(parser)["arguments"]
            return parse(parser, args, *more, **named)

        return watched

    def watch_click(self, _: typing.Any) -> None:
        for name in ("click.core", "typer._click.core"):  # typer has a copy of its own from 0.26 on
            if name in sys.modules:
                self._before_call(
                    sys.modules[name].Command, "make_context", lambda command, _, args, *__: (args, _of_click, command)
                )

    def watch_absl(self, _: typing.Any) -> None:
        values = importlib.import_module("absl.flags").FlagValues
        self._before_call(values, "__call__", lambda flags, argv, *_: (argv, _of_absl, flags))

    def watch_tyro(self, _: typing.Any) -> None:
        backends = importlib.import_module("tyro._backends._argparse_backend")
        others = importlib.import_module("tyro._backends._tyro_backend")

        def describe(spec: typing.Any) -> _Level:
            return _of_argparse(backends.ArgparseBackend().get_parser_for_completion(spec, prog="", add_help=True))

        for backend in (backends.ArgparseBackend, others.TyroBackend):
            self._before_call(backend, "parse_args", lambda _, parser_spec, args, *__: (args, describe, parser_spec))

    def watch_fire(self, fire: typing.Any) -> None:
        def call(component: typing.Any = None, command: typing.Any = None, *_: typing.Any) -> typing.Any:
            if component is None:
                component = dict(vars(sys.modules["__main__"]))
            return sys.argv[1:] if command is None else command, _of_fire, component

        self._before_call(fire, "Fire", call)

    def _before_call(self, owner: typing.Any, name: str, look: typing.Callable[..., typing.Any]) -> None:
        """Watch a function: `look` returns of its arguments the words, what describes the parser, and the parser."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def watched(*args: typing.Any, **named: typing.Any) -> typing.Any:
            bound = inspect.signature(original).bind(*args, **named)
            bound.apply_defaults()
            words, describe, parser = look(*bound.args)
            if _HELP in words:
                self.end(lambda: describe(parser))
            return original(*args, **named)

        setattr(owner, name, watched)


def _argument(name: str, flags: typing.Iterable[str], **more: typing.Any) -> _Level:
    return {"name": name, "flags": list(flags), **more}


def _of_argparse(parser: typing.Any) -> _Level:
    arguments: list[_Level] = []
    commands: _Level = {}
    is_of_tyro = type(parser).__module__.startswith("tyro.")
    for action in parser._actions:
        kind, flags = type(action).__name__, action.option_strings
        if isinstance(getattr(action, "_name_parser_map", None), dict):
            commands.update((name, _of_argparse(each)) for name, each in action._name_parser_map.items())
        elif kind not in ("_HelpAction", "_VersionAction"):
            negatives = [each for each in flags if _positive(each) in flags]
            hint = getattr(action, "_typehint", None)  # of jsonargparse
            nargs = action.nargs if action.nargs is None or action.nargs in ("?", "+") else "*"
            if isinstance(action.nargs, int):
                nargs = None if is_of_tyro and action.nargs == 1 else action.nargs
            is_required = action.required or action.dest in getattr(parser, "required_args", ())
            arguments.append(
                _argument(
                    action.dest,
                    (each for each in flags if each not in negatives),
                    negatives=negatives,
                    nargs=nargs,
                    repeats=kind == "_AppendAction",
                    choices=_choices(action.choices, action.type) if action.choices else _choices(_literals(hint)),
                    required=is_required if flags else nargs not in ("?", "*"),
                    type=str(action.metavar) if is_of_tyro else getattr(hint or action.type, "__name__", ""),
                )
            )
    return {"arguments": arguments, "commands": commands, "has_keys": hasattr(parser, "parse_object")}


def _positive(flag: str) -> str | None:
    """The flag without its `no-`, as `BooleanOptionalAction` adds it; None if it has none."""
    found = [flag.replace(no, "", 1) for no in ("no-", "no_") if no in flag]
    return found[0] if found else None


def _literals(hint: typing.Any) -> typing.Any:
    """The texts that a type of jsonargparse permits."""
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)
    return list(hint.__members__) if isinstance(hint, type) and issubclass(hint, enum.Enum) else ()


def _choices(choices: typing.Any, type_: typing.Any = None) -> list[str]:
    """Choices as the texts that a script takes; none where it makes something else of a text first."""
    listed = list(itertools.islice(choices, _MAX_CHOICES + 1))
    is_text = all(isinstance(each, (str, int, float)) and not isinstance(each, (bool, enum.Enum)) for each in listed)
    is_taken = is_text and type_ in (None, str, int, float) and len(listed) <= _MAX_CHOICES
    return [str(each) for each in listed] if is_taken else []


def _of_click(command: typing.Any, context: typing.Any = None) -> _Level:
    context = command.context_class(command, info_name=command.name, parent=context)
    names = command.list_commands(context) if hasattr(command, "list_commands") else ()
    found = {name: command.get_command(context, name) for name in names}
    return {
        "arguments": [_of_click_parameter(each) for each in command.params],
        "commands": {name: _of_click(each, context) for name, each in found.items() if each is not None},
        "accepts_any": bool(command.context_settings.get("ignore_unknown_options")),
    }


def _of_click_parameter(parameter: typing.Any) -> _Level:
    is_option = parameter.param_type_name == "option"
    nargs = {1: None, -1: "*"}.get(parameter.nargs, parameter.nargs)
    if is_option and (parameter.is_flag or parameter.count):
        nargs = 0
    elif getattr(parameter, "_flag_needs_value", False):
        nargs = "?"
    described = getattr(parameter, "type_descriptor", None)  # of typer, which has no types of click from 0.26 on
    if described is None:
        type_, choices = parameter.type.name, getattr(parameter.type, "choices", ())
    else:
        type_, choices = getattr(described.annotation, "__name__", ""), described.choices or ()
    text_of = "name" if described is None else "value"
    return _argument(
        parameter.name,
        parameter.opts if is_option else (),
        negatives=parameter.secondary_opts,
        nargs=nargs,
        repeats=bool(getattr(parameter, "multiple", False)),
        choices=_choices([getattr(each, text_of) if isinstance(each, enum.Enum) else each for each in choices]),
        required=bool(parameter.required and not parameter.envvar and not getattr(parameter, "prompt", None)),
        type=type_,
    )


def _of_absl(values: typing.Any) -> _Level:
    flags = {flag.name: flag for flag in values._flags().values()}
    return {
        "arguments": [
            _argument(
                flag.name,
                [f"--{flag.name}"],
                negatives=[f"--no{flag.name}"] if flag.boolean else [],
                nargs=0 if flag.boolean else None,
                repeats=flag.flag_type().startswith("multi"),
                choices=_choices(
                    getattr(flag.parser, "enum_values", None)
                    or [each.name for each in getattr(flag.parser, "enum_class", ())]
                ),
                type=flag.flag_type(),
            )
            for flag in flags.values()
            if flag.name not in ("help", "helpfull", "helpshort", "helpxml")
        ]
    }


def _of_fire(component: typing.Any, before: typing.Sequence[_Level] = (), depth: int = 0) -> _Level:
    """The arguments that fire reads from a signature; the members of what is no function are commands."""
    level: _Level = {"arguments": list(before), "accepts_any": False, "commands": {}}
    with contextlib.suppress(TypeError, ValueError):  # what cannot be called, or has no signature
        for each in inspect.signature(component).parameters.values():
            level["accepts_any"] |= each.kind is each.VAR_KEYWORD
            if each.name != "self" and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL):
                required = each.default is each.empty
                flags, negatives = [f"--{each.name}"], [f"--no{each.name}"]
                level["arguments"].append(
                    _argument(each.name, flags, negatives=negatives, nargs="?", required=required)
                )
    if not inspect.isroutine(component) and depth < _MAX_DEPTH:
        has_members = inspect.isclass(component) or inspect.ismodule(component)
        members = component if isinstance(component, dict) else vars(component if has_members else type(component))
        for name, member in members.items():
            component = getattr(member, "__func__", member)  # of a static method
            is_command = inspect.isroutine(component) or inspect.isclass(component)
            if is_command and isinstance(name, str) and not name.startswith("_"):
                level["commands"][name] = _of_fire(component, level["arguments"], depth + 1)
    return level


_OTHERS: dict[str, typing.Callable[[_Watch, typing.Any], None]] = {
    "absl": _Watch.watch_absl,
    "click": _Watch.watch_click,
    "fire": _Watch.watch_fire,
    "jsonargparse": lambda watch, library: watch.watch_argparse(library.ArgumentParser),
    "typer": _Watch.watch_click,
    "tyro": _Watch.watch_tyro,
}
"""The libraries that do not read arguments by argparse, or not by its methods."""


def main(file: str, libraries: str, *words: str) -> None:
    """Run the script of these words, which are `-m module` or its path."""
    is_module = words[0] == "-m"
    sys.argv = [words[-1], _HELP]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(pathlib.Path.cwd() if is_module else pathlib.Path(words[-1]).resolve().parent)
    watch = _Watch(file)
    watch.watch_argparse(argparse.ArgumentParser)
    for library in libraries.split(","):
        if library in _OTHERS:
            with contextlib.suppress(ImportError):  # the script's own import will say so
                _OTHERS[library](watch, importlib.import_module(library))
    if is_module:
        runpy.run_module(words[-1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(str(pathlib.Path(words[-1]).absolute()), run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
