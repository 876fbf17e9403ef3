"""Read and write the benchmark sections of the documents: one section per script, with command, date and machine."""

import datetime
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.rows import SHORT_HEADING, Row, heading_lines, in_brackets, parse_rows, table_line, verdict_beside

__all__ = [
    "BENCHMARKS",
    "MEASUREMENT",
    "describe_machine",
    "load_average",
    "read_rows",
    "section",
    "source_line",
    "write_section",
]

_DOCS = Path(__file__).resolve().parents[1] / "docs"
BENCHMARKS = _DOCS / "benchmarks.md"
MEASUREMENT = _DOCS / "measurement_evidence.md"


def describe_machine(device: str = "cpu") -> str:
    """Describe the machine in one line: device if not the CPU, processor, cores, system, Python, torch."""
    import torch  # the import takes seconds; here it is after the measurement

    from runmanager.tracking.device.devices import device_facts, resolve_device
    from runmanager.tracking.environment.environment import capture_environment

    used = resolve_device(device)
    name = "" if used.type == "cpu" else f"{device_facts(used, cpu_model=None)['device_name']}, "

    facts = capture_environment(torch.device("cpu"))
    cores = "1 core" if facts.num_cores == 1 else f"{facts.num_cores} cores"
    system = f"{platform.system()} {platform.release().partition('-')[0]}"
    return f"{name}{facts.cpu_model}, {cores}, {system}, Python {facts.python}, torch {facts.libraries['torch']}"


def section(rows: Sequence[Row], *, machine: str, command: str, day: datetime.date) -> str:
    """Format the table of a script, followed by its command, date, rounds and machine.

    The budget has its verdict beside it, and a column that is empty in all rows is left out.
    """
    table = [(row.what, *map(in_brackets, (row.ours, row.other, row.ratio)), verdict_beside(row)) for row in rows]
    columns = [each for each in zip(SHORT_HEADING, *table, strict=True) if set(each[1:]) != {"-"}]
    heading, *lines = zip(*columns, strict=True)
    least, most = min(int(row.rounds) for row in rows), max(int(row.rounds) for row in rows)
    rounds = f"{least} to {most} rounds" if least < most else f"{most} round{'s' * (most != 1)}"
    source = f"`{command}`, {day.isoformat()}, {rounds}, on {machine}."
    return "\n".join([*heading_lines(heading), *map(table_line, lines), "", source, ""])


def source_line(command: str, *conditions: str, machine: str) -> str:
    """Format the command, conditions, today's date and machine that produced a table."""
    return f"{', '.join([f'`{command}`', *conditions, datetime.date.today().isoformat()])}, on {machine}."


def load_average() -> str:
    """Describe the load of the machine over the last five minutes."""
    return f"load {os.getloadavg()[1]:.1f} in the last five minutes"


def read_rows(page: Path) -> dict[str, list[Row]]:
    """Return the rows on the page by the script that wrote them; an empty list if a script was not run yet."""
    found = re.findall(r"^<!-- begin (\w+) -->\n(.*?)^<!-- end \1 -->", page.read_text(), re.DOTALL | re.MULTILINE)
    return {name: parse_rows(text) for name, text in found}


def write_section(page: Path, name: str, text: str) -> None:
    """Replace the text between the markers of `name`. Raises `RuntimeError` if the page has no such markers.

    Of a machine in the page's list (`- **machine A**: …`) the text gets the letter.
    """
    for letter, machine in re.findall(r"^- \*\*machine (\w+)\*\*: (.+)$", page.read_text(), re.MULTILINE):
        text = text.replace(f", on {machine}.\n", f", on machine {letter}.\n")
    pattern = rf"(?<=<!-- begin {re.escape(name)} -->\n).*?(?=<!-- end {re.escape(name)} -->)"
    new, count = re.subn(pattern, lambda _: text, page.read_text(), count=1, flags=re.DOTALL | re.MULTILINE)
    if not count:
        raise RuntimeError(f"{page} must match {pattern}, got no match; add the markers.")
    page.write_text(new)
