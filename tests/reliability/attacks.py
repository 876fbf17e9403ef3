"""Run the tests that attack the promises of docs/security.md, and write what came of them to its table.

python tests/reliability/attacks.py --write docs/security.md
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from page import write_row

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Attack:
    """A row of the page: the promise, what tries to break it, and the tests that do; `tried` counts their cases."""

    promise: str
    what: str
    tests: Sequence[str]


ATTACKS = (
    Attack(
        "A faulty command says so in one line a fault, without a traceback, with status 2, and writes nothing",
        "faulty command lines; ten of them as processes",
        ["tests/cli/test_bad_commands.py"],
    ),
    Attack(
        "The names of secrets mean what is documented, and their texts are masked wherever words or settings show them",
        "names, settings, command lines and messages with secrets; output cut at any byte",
        ["tests/records/settings/test_secrets.py", "tests/app/programs/script/output/test_secret_filter.py"],
    ),
    Attack(
        "Links in a sweep are named and not followed",
        "links in place of runs/, of a run and of each of its files, to be read, removed, renamed, adopted",
        ["tests/cli/test_links.py", "tests/cli/commands/test_rm_mv.py::test_a_link_is_not_moved_for_what_it_leads_to"],
    ),
    Attack(
        "A checkpoint runs no code, and takes no more memory than its file has bytes",
        "checkpoints that call a function, declare longer storages, repeat a number, expand when they are read",
        ["tests/tracking/checkpoint/test_checkpoint_file.py"],
    ),
    Attack(
        "Text of runs stays text: on a terminal, in CSV, Markdown, LaTeX and HTML, and in a printed command",
        "every command and format on sweeps whose every text is hostile; words read by bash and zsh, also typed",
        ["tests/cli/test_hostile_text.py", "tests/results/tables/test_text_formats.py", "tests/test_text.py"],
    ),
    Attack(
        "A stored `_target_` is not imported or called without `--trust`",
        "stored settings that name functions of foreign modules",
        ["tests/training/test_custom_targets.py"],
    ),
)


def carry_out(attack: Attack) -> tuple[int, int]:
    """Return how many cases were tried, and how many of them broke the promise."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *attack.tests]
        subprocess.run(words, cwd=ROOT, check=False)
        suite = ElementTree.parse(report).getroot()[0]
    counts = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    return counts["tests"] - counts["skipped"], counts["failures"] + counts["errors"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="the page whose rows are written")
    page = parser.parse_args().write
    broken = 0
    for attack in ATTACKS:
        tried, num_broken = carry_out(attack)
        broken += num_broken
        line = f"| {attack.promise} | {attack.what} | {tried:,} | {num_broken} |"
        print(line)
        if page is not None:
            write_row(page, attack.promise[:20].replace("`", "."), line)
    sys.exit(broken > 0)


if __name__ == "__main__":
    main()
