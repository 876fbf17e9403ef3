"""`runmanager tune PROGRAM`: settings of a script or a Hydra application, raced in whole runs that take turns."""

from runmanager.app.compose.override_quoting import format_override
from runmanager.app.programs.script.arguments.setting_words import SettingGrid, parse_settings, setting_word
from runmanager.app.programs.script.script import find_script
from runmanager.app.programs.whole_run_race import RacedValues, race_whole_runs
from runmanager.app.script_command_line import ScriptCommandLine, after_separator
from runmanager.app.script_main import become_application, launcher_of, program_of
from runmanager.tracking.environment.environment import environment_for_children
from runmanager.tracking.environment.rank_check import refuse_several_ranks

__all__ = ["tune_script"]


def tune_script(line: ScriptCommandLine, *, seconds: float, began: float) -> int:
    """Race the lists of values among a program's settings; return the exit status. See `race_whole_runs`.

    A Hydra application replaces this process. Raises `RunManagerError` where nothing has been run.
    """
    refuse_several_ranks(of_sweep=True)
    script = find_script(line.program, is_module=line.is_module, python=line.flags.python)
    call = _single_call(line)
    if script.is_hydra_application:
        typed = [*line.settings, *line.fixed]
        asked = {"seconds": seconds, "began": began, "call": list(call), "typed": typed}
        return become_application(script, line, [format_override("hydra.sweeper.tune", asked)])
    values = _raced_values(parse_settings(line.settings))
    fixed = after_separator(line.fixed)
    with environment_for_children(line.words, code_folder=script.code_folder):
        program, launcher = program_of(line, script), launcher_of(line.flags)
        return race_whole_runs(program, values, launcher, call=call, fixed=fixed, seconds=seconds, began=began)


def _single_call(line: ScriptCommandLine) -> tuple[str, ...]:
    """The command of one run, up to its settings."""
    options = [
        word
        for option, value in (("--python", line.flags.python), ("--argument", line.flags.argument))
        if value is not None
        for word in (option, value)
    ]
    return ("runmanager", "run", *options, *(("-m",) if line.is_module else ()), line.program)


def _raced_values(grid: SettingGrid) -> RacedValues:
    words = {each.name: [(value.text, setting_word(each.name, value)) for value in each.values] for each in grid.sets}
    return RacedValues(words, [each.name for each in grid.sets if each.is_axis])
