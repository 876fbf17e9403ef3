"""`runmanager tune`: settings that change nothing but speed, raced against each other on this machine."""

import math
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from runmanager.app.request.command import Command, after_separator, option_words
from runmanager.app.request.sweep_request import SweepRequest, flag_of
from runmanager.cli.arguments import complete_setting_names, fixed_arguments
from runmanager.cli.hydra_application import run_application
from runmanager.errors import UsageError
from runmanager.records.files.paths import dated_name

_THREADS = "threads="


def tune(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROGRAM] SETTINGS",
            help="The settings of the job to make faster; or a script, or a Hydra application, with lists of values "
            "(more arguments after `--`).",
            show_default=False,
            autocompletion=complete_setting_names,
        ),
    ] = None,
    seconds: Annotated[float, typer.Option(metavar="SECONDS", help="How long it may take.")] = 60.0,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="SETTING", help="Also race what changes results: precision. Repeatable."),
    ] = None,
    save: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Write the preset conf/experiment/NAME.yaml. Default: tuned, tuned-2, …"),
    ] = None,
    output_root: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Where the result is stored. Default: outputs.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Overwrite a preset of that name.")] = False,
    module: Annotated[
        str | None, typer.Option("-m", metavar="MODULE", help="Race a module in place of a script.")
    ] = None,
    python: Annotated[
        str | None, typer.Option(metavar="PATH", help="The interpreter of a script. Default: the current one.")
    ] = None,
    argument: Annotated[
        str | None, typer.Option(metavar="FORM", help="The form of a script's setting, such as '{name}={value}'.")
    ] = None,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Do not check a script's settings against its own help.")
    ] = False,
) -> int:
    """Find the settings that train fastest on this machine, among those that change nothing but speed.

    Loaders, workers, pinned memory, channels_last, micro_batch, threads, graphs and, from --seconds 300 on, compile
    take turns. Settings given with one value stay; of those given with several, as num_workers=0,2,4, these race.
    Whole runs of a script or a Hydra application take turns, from the first value of each list on: `runmanager tune
    train.py num_workers=0,2,4`. The command to use is printed last, and a preset of the built-in job is written.
    """
    began = time.monotonic()
    if not 0 < seconds < math.inf:
        raise UsageError(f"`--seconds` must be a number above 0, got {seconds:g}.")
    given = list(words or ())
    is_script = module is not None or (bool(given) and given[0].endswith(".py") and "=" not in given[0])
    fixed = fixed_arguments(ctx)
    of_script = {"--python": python, "--argument": argument, "--unchecked": unchecked, "--": fixed}
    _refuse({"--allow": allow, "--save": save} if is_script else of_script, is_script=is_script)
    if not is_script:
        asked = {"seconds": seconds, "began": began, "allow": allow or [], "save": save, "overwrites": yes}
        return _tune_job(ctx, given, output_root, asked)
    from runmanager.app.script_main import tune_script  # imports Hydra, which is slow

    program, *settings = given if module is None else [module, *given]
    asked_for = {"output_root": output_root, "python": python, "argument": argument, "unchecked": unchecked or None}
    chosen: dict[str, Any] = {name: value for name, value in asked_for.items() if value is not None}
    request = SweepRequest(name=dated_name("tune"), debug=bool(ctx.obj), **chosen)
    typed = ["--seconds", f"{seconds:g}", *option_words(request, chosen), *([] if module is None else ["-m", module])]
    command = Command(
        request,
        given={name: flag_of(name) for name in ("name", *chosen)},
        program=program,
        is_module=module is not None,
        settings=tuple(settings),
        fixed=fixed,
        words=("runmanager", "tune", *typed, *given, *after_separator(fixed)),
    )
    return tune_script(command, seconds=seconds, began=began)


def _refuse(options: dict[str, Any], *, is_script: bool) -> None:
    """Raise `UsageError` for options that are for the other kind of program."""
    for option in (option for option, value in options.items() if value):
        if is_script:
            raise UsageError(f"`{option}` must be left out for a script, got it; it is for the built-in job.")
        raise UsageError(f"`{option}` must be given with a script, got none; the name of a script ends in .py.")


def _tune_job(ctx: typer.Context, words: Sequence[str], output_root: str | None, asked: dict[str, Any]) -> int:
    from runmanager.app.request.command import format_override

    if flags := [word for word in words if word.startswith("-")]:
        raise UsageError(f"`{flags[0]}` must be a setting, got an option; those of a race stand in --help.")
    asked["threads"] = _threads(words)
    settings = [word for word in words if not word.startswith(_THREADS)]
    folder = [] if output_root is None else [format_override("output_root", output_root)]
    return run_application(ctx, ["-m", *settings, *folder, format_override("hydra.sweeper.tune", asked)])


def _threads(words: Sequence[str]) -> list[int]:
    """The numbers of threads that the word `threads=1,2` gives."""
    found = [word.removeprefix(_THREADS) for word in words if word.startswith(_THREADS)]
    numbers = found[-1].split(",") if found else []
    if not all(each.isdecimal() for each in numbers):
        raise UsageError(f"`threads` must be numbers of at least 1, such as 1,2, got {found[-1]}.")
    return [int(each) for each in numbers]
