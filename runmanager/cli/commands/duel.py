"""`runmanager duel`: two settings, commits or environments measured against each other, in turns on this machine."""

import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from runmanager.app.request.command import after_separator
from runmanager.app.request.sweep_request import options
from runmanager.cli.arguments import FixedArgumentsCommand, fixed_arguments
from runmanager.cli.commands.compare import OneSweep, SweepPair
from runmanager.cli.conditions import FailIfOption, Verdict, answer_conditions, could_say
from runmanager.cli.hydra_application import run_application
from runmanager.cli.printing import print_text
from runmanager.errors import UsageError
from runmanager.records.files.paths import SweepPaths, dated_name
from runmanager.records.host.standard_streams import print_line
from runmanager.text import in_backticks, printable_line, shell_join

if TYPE_CHECKING:
    from runmanager.race.duel import DuelRequest
    from runmanager.results.compare.comparison_table import CompareOptions, ComparisonTable
    from runmanager.results.gate.fail_if import Condition

_SIDE = "One or more overrides: 'device=cuda num_workers=2'."
_DEFAULTS = {"name": "", "output_root": "outputs", "epochs": "1"}
_FAILED = 1


class DuelCommand(FixedArgumentsCommand):
    """`runmanager duel`: the sides are its first words."""

    passed_on: ClassVar[Mapping[str, str]] = {
        " ".join(filter(None, (each.flag, each.metavar))): each.help
        for each in options().values()
        if each.name in ("dry_run", "quiet", "secrets")
    }

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage."""
        assert self.options_metavar is not None, "it is given where the command is registered"
        return [self.options_metavar]


class DuelFormat(StrEnum):
    """Formats of a duel's answer."""

    TEXT = "text"
    GITHUB = "github"


def duel(
    ctx: typer.Context,
    one: Annotated[str | None, typer.Argument(metavar="SIDE", help=_SIDE, show_default=False)] = None,
    other: Annotated[str | None, typer.Argument(metavar="SIDE", help=_SIDE, show_default=False)] = None,
    baseline_rev: Annotated[
        str | None, typer.Option(metavar="REV", help="The commit of the baseline; then settings follow, not sides.")
    ] = None,
    candidate_rev: Annotated[
        str | None, typer.Option(metavar="REV", help="The commit of the candidate. Default with a baseline: HEAD.")
    ] = None,
    baseline_python: Annotated[
        str | None, typer.Option(metavar="PATH", help="The interpreter of the baseline. Default: this one.")
    ] = None,
    candidate_python: Annotated[
        str | None, typer.Option(metavar="PATH", help="The interpreter of the candidate. Default: this one.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="The duel's name. Default: duel-DATE.")] = None,
    output_root: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Where it is stored. Default: outputs.")
    ] = None,
    fail_if: FailIfOption = None,
    format_: Annotated[
        DuelFormat, typer.Option("--format", help="github prints the answer alone, as a comment in Markdown.")
    ] = DuelFormat.TEXT,
) -> int:
    """Measure which of two settings, two commits or two Python environments trains faster, side by side.

    Both run at the same time and take turns on the machine until the speedup is known within measure.half_width (1%),
    or measure.max_seconds (60) have passed. Further overrides apply to both sides, and among them may stand
    `--dry-run`, `--quiet`, `--debug` and `--secrets NAMES`. With --baseline-rev or --baseline-python all words are
    settings of both; a script and its settings may take their place, whose whole runs take turns: `runmanager duel
    --baseline-rev main train.py seed=1,2,3 -- --data DIR`. Options of `runmanager sweep` stand before the script,
    arguments that all its runs have after `--`.
    """
    from runmanager.results.gate.fail_if import parse_condition

    conditions = [parse_condition(text) for text in fail_if or ()]
    words = [word for word in (one, other) if word is not None]
    place = {key: value for key, value in (("name", name), ("output_root", output_root)) if value is not None}
    revisions = (baseline_rev, candidate_rev)
    pythons = (baseline_python, candidate_python)
    if any(revisions) or any(pythons):
        if any(revisions):
            revisions = (baseline_rev, candidate_rev or "HEAD")
            if baseline_rev is None:
                raise UsageError("`--candidate-rev` must go with `--baseline-rev`, got it alone.")
        return _duel_of_code(ctx, [*words, *ctx.args], place, revisions, pythons, conditions, format_)
    if "--help" in ctx.args:
        print_text(ctx.get_help())
        return 0
    if len(words) < 2:
        raise UsageError("Missing argument 'SIDE': a duel must have two, or --baseline-rev or --baseline-python.")
    _refuse_fixed(ctx)
    return _duel_of_settings(ctx, words[0], words[1], place, conditions, format_)


def _refuse_fixed(ctx: typer.Context) -> None:
    if fixed := after_separator(fixed_arguments(ctx)):
        raise UsageError(f"`--` must be followed by arguments of a script, got `{' '.join(fixed)}` without a script.")


def _duel_of_settings(
    ctx: typer.Context,
    one: str,
    other: str,
    place: Mapping[str, str],
    conditions: "list[Condition]",
    format_: DuelFormat,
) -> int:
    for word in (one, other):
        if "=" not in word or word.startswith("-"):
            raise UsageError(f"A side of a duel must be overrides like device=cuda, got '{word}'.")
    _refuse_repeated(ctx.args)
    chosen, others = _own_words(ctx.args, place)
    from runmanager.app.request.command import quote_text

    if format_ is DuelFormat.GITHUB and "--quiet" not in others:
        others.append("--quiet")  # the comment alone is printed
    words = [f"{name}={value}" for name, value in chosen.items()]
    sides = f"hydra.sweeper.sides=[{quote_text(one)},{quote_text(other)}]"
    status = run_application(ctx, ["-m", "measure=paired", *words, sides, *others])
    folder = SweepPaths(Path(chosen["output_root"]) / chosen["name"])
    if not folder.record.exists() or "--dry-run" in ctx.args:
        return status
    from runmanager.results.load.loader import read_results

    verdict = _answer(OneSweep(*read_results(folder), f"Duel {folder.name}"), conditions, format_)
    return verdict.exit_status if verdict.status is not None and status in (0, _FAILED) else status


def _refuse_repeated(words: list[str]) -> None:
    """Raise `UsageError` for a setting that follows the sides twice: its values may be meant as the sides."""
    names = [word.partition("=")[0] for word in words if "=" in word and not word.startswith("-")]
    for name in names:
        if names.count(name) > 1:
            values = [word for word in words if word.startswith(f"{name}=")]
            example = f"{shell_join(['runmanager', 'duel', *values[:2]])} …"
            raise UsageError(
                f"`{name}` must be given once after the sides of a duel, got {' and '.join(values)}; the first two "
                f"words are the sides: {in_backticks(example)}."
            )


def _own_words(given: list[str], place: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Separate the settings that a duel has defaults for, which options may have given in `place`.

    Raises `UsageError` for one that is given in both ways, and for a `measure` other than paired.
    """
    for word in given:
        if word.partition("=")[0] in place:
            raise UsageError(f"`{word.partition('=')[0]}` must be given once, got it as a word and as an option.")
        if word.startswith("measure=") and word != "measure=paired":
            raise UsageError(f"`measure` must be paired in a duel, got '{word.partition('=')[2]}'; leave it out.")
    chosen = {**_DEFAULTS, "name": dated_name("duel"), **place}
    own = [word for word in given if word.partition("=")[0] in chosen and "=" in word]
    chosen |= {word.partition("=")[0]: word.partition("=")[2] for word in own}
    return chosen, [word for word in given if word not in own and word != "measure=paired"]


def _answer(pairs: OneSweep | SweepPair, conditions: "list[Condition]", format_: DuelFormat) -> Verdict:
    """Answer from the sweep of a duel of settings, or from both sweeps of one of commits or environments."""
    from runmanager.results.compare.comparison_table import CompareOptions
    from runmanager.results.findings.answer_sentences import duel_answers

    is_of_code = isinstance(pairs, SweepPair)
    options = CompareOptions()
    if is_of_code and not any(run.epochs for run in pairs.contents.runs):  # whole runs of a program without epochs
        options = CompareOptions(metric="run_seconds")

    def comparison_by(options: "CompareOptions") -> "ComparisonTable":
        return pairs.compare(pairs.match(options).without_stand_in(), options)

    def longer(_: object) -> str:
        return could_say("the same duel with a larger measure.max_seconds, or with more seeds")

    table = comparison_by(options)
    took_turns = any(row.effect is not None and row.effect.num_process_pairs for row in table.rows)
    answers = pairs.answers(table, options) if is_of_code and not took_turns else duel_answers(table)
    duel = longer if is_of_code else pairs.duel
    verdict = answer_conditions(conditions, options, comparison_by, pairs.contents, duel)
    if format_ is DuelFormat.GITHUB:
        from runmanager.results.report.markdown_summary import github_comment

        print_text(github_comment(table, pairs.title, answers, verdict.lines, verdict.status))
        return verdict
    for line in (*answers, *verdict.lines):
        print_line(printable_line(line))
    return verdict


def _duel_of_code(
    ctx: typer.Context,
    words: list[str],
    place: Mapping[str, str],
    revisions: tuple[str | None, str | None],
    pythons: tuple[str | None, str | None],
    conditions: "list[Condition]",
    format_: DuelFormat,
) -> int:
    """Run the duel of two commits or environments, and answer from both sides' sweeps."""
    from runmanager.race.duel import run_duel
    from runmanager.results.gate.sweep_pairs import read_two_sweeps

    request = _request(ctx, words, place, revisions, (pythons[0] or sys.executable, pythons[1] or sys.executable))
    candidate = str(Path(request.output_root) / f"{request.name}-candidate")
    followed = in_backticks(shell_join(["runmanager", "watch", candidate]))
    line = f"Both sides run in turns; {followed} shows the progress in another terminal."
    print_line(line, sys.stderr)
    result = run_duel(request)
    out = sys.stderr if format_ is DuelFormat.GITHUB else sys.stdout
    for line in result.lines:
        print_line(printable_line(line), out)
    verdict = _answer(SweepPair(read_two_sweeps(*result.sweeps)), conditions, format_)
    worst = max(result.statuses, key=abs)
    if verdict.status is not None and all(status in (0, _FAILED) for status in result.statuses):
        return verdict.exit_status
    return worst if worst >= 0 else _FAILED


def _request(
    ctx: typer.Context,
    words: list[str],
    place: Mapping[str, str],
    revisions: tuple[str | None, str | None],
    pythons: tuple[str, str],
) -> "DuelRequest":
    from runmanager.race.duel import DuelRequest

    at = next((index for index, word in enumerate(words) if word.endswith(".py") and "=" not in word), None)
    if at is not None:
        if Path(words[at]).is_absolute() and any(revisions):
            raise UsageError(f"A script must be given by its path in the repository, got {words[at]}.")
        name, output_root = place.get("name", dated_name("duel")), place.get("output_root", "outputs")
        settings = [*words[at + 1 :], *after_separator(fixed_arguments(ctx))]
        return DuelRequest(name, output_root, settings, revisions, pythons, words[at], words[:at])
    _refuse_fixed(ctx)
    if flags := [word for word in words if word.startswith("-")]:
        raise UsageError(f"A duel of commits or environments must have settings alone, got '{flags[0]}'.")
    chosen, others = _own_words(words, place)
    name, output_root = chosen.pop("name"), chosen.pop("output_root")
    settings = [*(f"{key}={value}" for key, value in chosen.items()), *others]
    return DuelRequest(name, output_root, settings, revisions, pythons)
