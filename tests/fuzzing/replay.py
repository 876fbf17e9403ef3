"""Read every finding of the fuzzers again, within the limits of the fuzzers.

python -m tests.fuzzing.replay
"""

import argparse
import os

from .corpus import still_broken
from .targets import TARGETS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help="by default all", default=list(TARGETS))
    names = parser.parse_args().targets
    broken = [(name, label, finding) for name in names for label, finding in still_broken(name, TARGETS[name])]
    for name, label, finding in broken:
        print(f"{name}: {label}: {finding.kind} in {finding.place}: {finding.line}")
    print(f"{len(names)} parsers, {len(broken)} inputs break a promise", flush=True)
    os._exit(bool(broken))  # the thread that draws the pages of `ui` waits for more of them


if __name__ == "__main__":
    main()
