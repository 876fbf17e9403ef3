"""`runmanager reproduce`: the command that makes a run again."""

from typing import TYPE_CHECKING

from runmanager.cli.arguments import RunName, TrustOption, read_named_run
from runmanager.cli.printing import print_text, wrap_lines

if TYPE_CHECKING:
    from runmanager.records.run.record import Environment

__all__ = ["reproduce"]

_SHORT_COMMIT = 10


def reproduce(run: RunName, trust: TrustOption = False) -> None:
    """Show the command that makes a run again, and what of code, packages and hardware is another here today."""
    from runmanager.app.reproduce_command import current_environment
    from runmanager.app.reproduce_command import reproduce as command_for
    from runmanager.results.findings.run_diff import difference_sections, environment_difference
    from runmanager.results.model.sections import as_text

    record = read_named_run(run).record
    reproduction = command_for(record, trust=trust)
    proved = [f"It gives the run's own signature, {record.signature[:8]}, with today's code."]
    said = [*(proved if reproduction.is_proved else ()), *reproduction.remarks]
    then = record.environment
    today = current_environment(then)
    if then.commit_clean is False:
        said.append("It was made with uncommitted changes, which nobody kept: its commit alone is not its code.")
    differences = environment_difference(then, today)
    if any(each.name == "Commit" for each in differences) and then.commit:
        said.append(f"Its code: git checkout {then.commit[:_SHORT_COMMIT]}")
    said.append(_said_of_code(then, today))
    if not differences:
        said.append("Packages and hardware are as they were.")
    sections = difference_sections(differences, names=("then", "today"))
    print_text(as_text(f"{reproduction.line}\n\n{wrap_lines(*said)}", sections))


def _said_of_code(then: "Environment", today: "Environment") -> str:
    """Whether the run's code is still the same: changed, the same, or not known."""
    from runmanager.records.run.code_identity import changed_files, describe_files, is_same_code

    if then.code == {}:
        return "It ran no code of your own."
    if files := changed_files((then, today)):
        return f"Its code has changed since: {describe_files(files)}."
    if is_same_code(then, today):
        return "Its code is the same."
    why = "the run did not record it" if then.code is None else "its files are not found from this folder"
    return f"Whether its code is the same is not known: {why}."
