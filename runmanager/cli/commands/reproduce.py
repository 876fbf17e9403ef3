"""`runmanager reproduce`: the command that makes a run again."""

from typing import TYPE_CHECKING

from runmanager.cli.arguments import RunName, TrustOption, read_named_run
from runmanager.cli.printing import print_text, wrap_lines
from runmanager.text import shell_join

if TYPE_CHECKING:
    from runmanager.records.run.run_record import Environment

_SHORT_COMMIT = 10


def reproduce(run: RunName, trust: TrustOption = False) -> None:
    """Show the command that makes a run again, and how today's code, packages and hardware differ from the run's."""
    from runmanager.app.reproduce_command import current_environment
    from runmanager.app.reproduce_command import reproduce as command_for
    from runmanager.results.findings.run_diff import diff_environments, difference_sections
    from runmanager.results.table_model.formatting import format_sections

    record = read_named_run(run).record
    reproduction = command_for(record, trust=trust)
    proof = [f"It gives the run's signature, {record.signature[:8]}, with today's code."]
    lines = [*(proof if reproduction.is_proved else ()), *reproduction.remarks]
    then = record.environment
    today = current_environment(then)
    if then.commit_clean is False:
        lines.append("It was made with uncommitted changes, which were not kept: its commit alone is not its code.")
    differences = diff_environments(then, today)
    if any(each.name == "Commit" for each in differences) and then.commit:
        lines.append(f"Its code: {shell_join(['git', 'checkout', then.commit[:_SHORT_COMMIT]])}")
    lines.append(_code_state(then, today))
    if not differences:
        lines.append("Packages and hardware are unchanged.")
    sections = difference_sections(differences, names=("then", "today"))
    print_text(format_sections(f"{reproduction.line}\n\n{wrap_lines(*lines)}", sections))


def _code_state(then: "Environment", today: "Environment") -> str:
    """A sentence on whether the run's code is the same today, has changed, or is not known."""
    from runmanager.records.run.environment_changes import changed_files, describe_files, is_same_code

    if then.code == {}:
        return "It ran no code of your own."
    if files := changed_files((then, today)):
        return f"Its code has changed since: {describe_files(files)}."
    if is_same_code(then, today):
        return "Its code is the same."
    why = "the run did not record it" if then.code is None else "its files cannot be found from this folder"
    return f"Whether its code is the same is not known: {why}."
