"""Let the first of four cells of other programs die in each of eight ways under our launchers.

python tests/reliability/program_deaths.py --write docs/reliability.md
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from deaths import DEATHS, LAUNCHERS, NOT_MEASURED, Seen, slurm_or_none, try_death
from dying_programs import APPLICATION, SCRIPT
from page import write_row

_OURS = [name for name, launcher in LAUNCHERS.items() if launcher.is_ours]
SUMMARY = "The same 8 ways, in a Hydra application and a script that never import this package"
NAMES = {
    (program.name, launcher): f"{program.name}, `{launcher}`" for program in (APPLICATION, SCRIPT) for launcher in _OURS
}
"""Names by program and launcher."""


def summary(seen: Mapping[tuple[str, str], Mapping[str, Seen]]) -> str:
    """Return the row of all programs and launchers on the page."""
    whole = {key: seen[key].values() for key in NAMES if len(seen.get(key, {})) == len(DEATHS)}
    kept = sum(each.is_as_promised for deaths in whole.values() for each in deaths)
    parts = [f"{kept} of {len(whole) * len(DEATHS)} times 3 finished and 1 truthful, status 1"] if whole else []
    parts += [f"{name}: {NOT_MEASURED}" for key, name in NAMES.items() if key not in whole]
    return f"| {SUMMARY} | {'; '.join(parts)} | `python tests/reliability/program_deaths.py` |"


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line; return 1 if one of the programs was not told of as promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ways", default=",".join(DEATHS), help="only these deaths")
    parser.add_argument("--write", type=Path, help="page whose rows are replaced by the results")
    options = parser.parse_args(words)
    deaths = [DEATHS[way] for way in options.ways.split(",")]
    if options.write and len(deaths) != len(DEATHS):
        parser.error("--write must come with every death: rows are written as a whole")
    with tempfile.TemporaryDirectory() as temporary, slurm_or_none(Path(temporary) / "slurm") as slurm:
        seen: dict[tuple[str, str], dict[str, Seen]] = {}
        for program, launcher in ((program, name) for program in (APPLICATION, SCRIPT) for name in _OURS):
            variables = slurm.variables if slurm and launcher == "slurm" else None
            if launcher == "slurm" and variables is None:
                continue
            of_column = seen[program.name, launcher] = {}
            for death in deaths:
                folder = Path(temporary) / f"{program.name}-{launcher}-{death.way}"
                found = try_death(folder, LAUNCHERS[launcher], death, program=program, variables=variables)
                of_column[death.way] = found
                print(f"{NAMES[program.name, launcher]}: {death.words}: {_described(found)}", flush=True)
    print(summary(seen))
    if options.write:
        write_row(options.write, rf"{re.escape(SUMMARY)} \|", summary(seen))
    return 0 if all(each.is_as_promised for column in seen.values() for each in column.values()) else 1


def _described(seen: Seen) -> str:
    is_other = "" if seen.is_as_promised else f"; not as promised: {seen.message!r}"
    return seen.in_words() + is_other


if __name__ == "__main__":
    sys.exit(main())
