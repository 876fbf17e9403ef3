"""Drive a sweep from another program, by documents alone: run it, add seeds until its best cell is certain, print it.

`python drive_a_sweep.py train.py lr=0.1,0.01`. The script prints its metric, as in `val_loss 0.25`.
"""

import json
import subprocess
import sys
from typing import Any

RUNMANAGER = (sys.executable, "-m", "runmanager")
MOST_SEEDS = 8


def document(*words: str) -> Any:
    """Return what a command prints with `--format json`."""
    printed = subprocess.run([*RUNMANAGER, *words, "--format", "json"], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(printed.stdout)


def main(program: list[str]) -> None:
    for count in range(3, MOST_SEEDS + 1):
        seeds = f"seed={','.join(map(str, range(count)))}"
        subprocess.run([*RUNMANAGER, "sweep", "--name", "driven", "--quiet", *program, seeds], check=True)
        best = document("best", "driven")
        if not best["rivals"]:
            break
    state = document("watch", "driven", "--once")
    run = document("show", best["best"]["runs"][0]["folder"])
    print(json.dumps({"settings": best["best"]["settings"], best["metric"]: best["best"]["mean"], "seeds": count}))
    print(f"{len(state['cells'])} cells; {run['record']['name']} took {run['record']['run_seconds']:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
