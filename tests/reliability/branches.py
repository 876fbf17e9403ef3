"""Say which branches of the package the tests take, from the data of coverage.py that `make coverage` has gathered.

python tests/reliability/branches.py --write docs/reliability.md
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from page import write_row

ROOT = Path(__file__).resolve().parents[2]
WANTED = 90.0
LISTED_BELOW = 80.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", type=Path, help="the page whose row is written")
    page = parser.parse_args().write
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "coverage.json")
        words = [sys.executable, "-m", "coverage", "json", "-q", "-o", str(report)]
        subprocess.run(words, cwd=ROOT, check=True)
        found = json.loads(report.read_text())
    totals = found["totals"]
    share = 100 * totals["covered_branches"] / totals["num_branches"]
    for name, file in sorted(found["files"].items(), key=lambda each: each[1]["summary"]["percent_covered"]):
        if file["summary"]["percent_covered"] < LISTED_BELOW:
            print(f"{file['summary']['percent_covered']:5.1f}%  {name}")
    came = (
        f"{totals['covered_branches']:,} ({share:.1f}%), and {totals['percent_statements_covered']:.1f}% of its lines"
    )
    line = f"| The {totals['num_branches']:,} branches of the package | the tests take {came} | `make coverage` |"
    print(line)
    if page is not None:
        write_row(page, "The [0-9,]+ branches", line)
    sys.exit(share < WANTED)


if __name__ == "__main__":
    main()
