"""Titled sections of named values, as aligned text for people, and the labels of a run's environment."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runmanager.text import padded, printable, printable_line, text_width


@dataclass(frozen=True)
class Section:
    """A title over rows of fields, with the name of the row first; `headings` are those of the fields.

    `lines` follow the rows unchanged.
    """

    title: str
    rows: Sequence[Sequence[str]] = ()
    headings: Sequence[str] = ()
    lines: Sequence[str] = ()


def format_sections(first_line: str, sections: Iterable[Section]) -> str:
    """Join the first line and all non-empty sections into text without control characters."""
    parts = [printable(first_line), *(_section_text(section) for section in sections if section.rows or section.lines)]
    return "\n\n".join(parts) + "\n"


def _section_text(section: Section) -> str:
    lines_of_fields = [section.headings, *section.rows] if section.headings else section.rows
    rows = [[printable_line(field) for field in row] for row in lines_of_fields]
    count = max(map(len, rows), default=0)
    widths = [max(text_width(row[index]) if index < len(row) else 0 for row in rows) for index in range(count)]
    lines = ["  " + "  ".join(padded(field, width) for field, width in zip(row, widths, strict=False)) for row in rows]
    return "\n".join(
        [
            printable_line(section.title),
            *(line.rstrip() for line in lines),
            *(f"  {printable_line(line.expandtabs())}" for line in section.lines),
        ]
    )


MACHINE = (
    ("host", "Host"),
    ("cpu_model", "CPU"),
    ("cores_text", "Cores"),
    ("torch_threads", "Torch threads"),
    ("device_name", "Devices used"),
    ("compute_capability", "Compute capability"),
    ("driver", "Driver"),
    ("cuda", "CUDA"),
    ("cudnn", "cuDNN"),
    ("cudnn_benchmark", "cuDNN benchmark"),
    ("cudnn_deterministic", "cuDNN deterministic"),
    ("tf32_matmul", "TF32 in matrix products"),
    ("tf32_cudnn", "TF32 in cuDNN"),
)
"""The fields of an `Environment` about the machine and its use, each with its label."""

PYTHON = (("python", "Python"),)

CODE = (("commit_text", "Commit"), ("commit_clean", "No uncommitted changes"))

_LOAD = (
    ("load_at_start", "Load at the start"),
    ("load_at_end", "Load at the end"),
    ("steal_share", "CPU time stolen (share)"),
    ("outside_cpu_share", "CPU time of others (share)"),
)

FACTS = (*MACHINE, *PYTHON, *CODE, *_LOAD)
