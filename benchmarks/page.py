"""The rows of a benchmark on its page: a section a script, with the machine, the day and the command."""

import datetime
import platform
import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.rows import HEADING, Row, as_line

__all__ = [
    "BENCHMARKS",
    "MEASUREMENT",
    "RELIABILITY",
    "described_machine",
    "read_rows",
    "section",
    "write_row",
    "write_section",
]

_DOCS = Path(__file__).resolve().parents[1] / "docs"
BENCHMARKS = _DOCS / "benchmarks.md"
MEASUREMENT = _DOCS / "measurement.md"
RELIABILITY = _DOCS / "reliability.md"


def described_machine(device: str = "cpu") -> str:
    """The machine in one line: another device than the CPU, processor, cores, system, Python, torch."""
    import torch  # seconds; and what was measured is done by now

    from runmanager.tracking.device.devices import device_facts, resolve_device
    from runmanager.tracking.environment.environment import capture_environment

    used = resolve_device(device)
    name = "" if used.type == "cpu" else f"{device_facts(used, cpu_model=None)['device_name']}, "

    facts = capture_environment(torch.device("cpu"))
    cores = "1 core" if facts.num_cores == 1 else f"{facts.num_cores} cores"
    system = f"{platform.system()} {platform.release().partition('-')[0]}"
    return f"{name}{facts.cpu_model}, {cores}, {system}, Python {facts.python}, torch {facts.libraries['torch']}"


def section(rows: Sequence[Row], *, machine: str, command: str, day: datetime.date, seconds: float) -> str:
    """The table of a script, and below it how, when and where it was made, and how long that took."""
    lines = [as_line(HEADING), as_line(["---"] * len(HEADING)), *(as_line(row.fields) for row in rows)]
    return "\n".join([*lines, "", f"`{command}`, {day.isoformat()}, in {seconds:.0f} s, on {machine}.", ""])


def read_rows(page: Path) -> dict[str, list[Row]]:
    """The rows that stand on the page, by the script that wrote them; none where nothing was measured yet."""
    found = re.findall(r"^<!-- begin (\w+) -->\n(.*?)^<!-- end \1 -->", page.read_text(), re.DOTALL | re.MULTILINE)
    return {name: [Row(*line[2:-2].split(" | ")) for line in _body(text)] for name, text in found}


def _body(text: str) -> list[str]:
    """The lines of the table of rows in a section, without its heading."""
    lines = text.splitlines()
    heading = as_line(HEADING)
    if heading not in lines:
        return []
    return [line for line in lines[lines.index(heading) + 2 :] if line.startswith("| ")]


def write_section(page: Path, name: str, text: str) -> None:
    """Replace what stands on the page between the marks of `name`. Raises `RuntimeError` where it has none."""
    _replace(page, rf"(?<=<!-- begin {re.escape(name)} -->\n).*?(?=<!-- end {re.escape(name)} -->)", text)


def write_row(page: Path, mark: str, fields: Sequence[str]) -> None:
    """Replace the row of a table whose first field begins with `mark`. Raises `RuntimeError` where there is none."""
    _replace(page, rf"^\| {re.escape(mark)}[^\n]*$", as_line(fields))


def _replace(page: Path, pattern: str, text: str) -> None:
    new, count = re.subn(pattern, lambda _: text, page.read_text(), count=1, flags=re.DOTALL | re.MULTILINE)
    if not count:
        raise RuntimeError(f"{page} must have a place for what is to be written, got none; look for {pattern}.")
    page.write_text(new)
