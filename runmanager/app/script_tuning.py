"""`runmanager tune PROGRAM`: settings of a script or a Hydra application, raced in whole runs that take turns."""

from runmanager.app.programs.script.arguments.setting_words import Setting, SettingGrid, parse_settings
from runmanager.app.programs.whole_run_race import RacedValues, race_whole_runs
from runmanager.app.request.command import Command, after_separator, option_words
from runmanager.app.request.override_quoting import format_override
from runmanager.app.script_main import become_application, launcher_of, program_of, refuse_faults, script_of
from runmanager.tracking.environment.environment import environment_for_children
from runmanager.tracking.environment.rank_check import refuse_several_ranks

__all__ = ["tune_script"]


def tune_script(command: Command, *, seconds: float, began: float) -> int:
    """Race the lists of values among a program's settings; return the exit status. See `race_whole_runs`.

    A Hydra application replaces this process. Raises `RunManagerError` where nothing has been run.
    """
    refuse_several_ranks(of_sweep=True)
    script = script_of(command)
    options = option_words(command.request, ("python", "argument"))
    call = ("runmanager", "run", *options, *(("-m",) if command.is_module else ()), script.word)
    if script.is_hydra_application:
        typed = [*command.settings, *command.fixed]
        asked = {"seconds": seconds, "began": began, "call": list(call), "typed": typed}
        return become_application(script, command, [format_override("hydra.sweeper.tune", asked)])
    refuse_faults(command, script)
    values = _raced_values(parse_settings(command.settings))
    fixed = after_separator(command.fixed)
    with environment_for_children(command.words, code_folder=script.code_folder):
        program, launcher = program_of(command, script), launcher_of(command)
        return race_whole_runs(program, values, launcher, call=call, fixed=fixed, seconds=seconds, began=began)


def _raced_values(grid: SettingGrid) -> RacedValues:
    words = {each.name: [(value.text, _word(each.name, value)) for value in each.values] for each in grid.sets}
    return RacedValues(words, [each.name for each in grid.sets if each.is_axis])


def _word(name: str, setting: Setting) -> str:
    """A setting as it is typed."""
    return format_override(name, setting.text) if isinstance(setting.value, str) else f"{name}={setting.text}"
