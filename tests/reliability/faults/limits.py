"""Too little of what processes need: descriptors, processes, shared memory."""

import os
import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from faults.small import SmallSweep, untrue_states
from faults.trial import Tally, discard, finish, new_folder, note_telling, run_command, run_well, stored_epochs

__all__ = ["LIMITS", "limit"]

_USER = 61234  # without processes of its own, so that a limit counts those of the command


def _descriptors(number: int) -> Sequence[str]:
    return ("bash", "-c", f'ulimit -n {number}; exec "$@"', "limited")


def _processes(number: int) -> Sequence[str]:
    reading = "+dac_read_search"  # Python may be in a folder that only we may enter
    return (
        *("setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups"),
        *(f"--inh-caps={reading}", f"--ambient-caps={reading}"),
        *("bash", "-c", f'ulimit -u {number}; exec "$@"', "limited"),
    )


def _shared_memory(number: int) -> Sequence[str]:
    mount = f"mount -t tmpfs -o size={number}k tmpfs /dev/shm"
    return ("unshare", "--mount", "bash", "-c", f'{mount} && exec "$@"', "limited")


LIMITS = {
    # name: the variant of the sweep, how its command is started, the smallest and largest limit, what tells it
    "descriptors": ("one", _descriptors, 4, 24, "open files"),  # a loader's worker without any hangs within PyTorch
    "processes": ("one", _processes, 1, 8, ""),
    "shared memory": ("loading", _shared_memory, 4, 128, "No space left"),
}


def limit(folder: Path, tries: int, seed: int, *, kind: str) -> Tally:
    """Run a sweep `tries` times under limits chosen by chance, and again without."""
    variant, wrapper, least, most, said = LIMITS[kind]
    tally, chance = Tally(), random.Random(seed)
    reference = SmallSweep(new_folder(folder, "whole"), variant, "undisturbed")
    run_well(reference)
    sweep = SmallSweep(new_folder(folder, "tried"), variant, "limited")
    for each in (folder, sweep.folder):
        each.chmod(0o777)
    home = {"HOME": str(sweep.folder), "XDG_CACHE_HOME": str(sweep.folder / "cache")}
    for number in range(tries):
        _own(sweep.folder, _USER)
        bound = chance.randint(least, most)
        what = f"try {number} with {bound}"
        status = run_command(replace(sweep, wrapper=wrapper(bound), variables=home))
        tally.tried += 1
        tally.untrue += [f"{what}: {line}" for line in untrue_states(sweep, status=status)]
        if status == 0:
            tally.told["nothing: the limit sufficed"] += 1
        else:
            note_telling(tally, sweep, said or "error: ", what=what)
        _own(sweep.folder, os.geteuid())
        finish(tally, sweep, reference, stored_epochs(sweep), what=what)
        discard(sweep)
    return tally


def _own(folder: Path, user: int) -> None:
    """Let a user own what is in a folder, if we may."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            shutil.chown(path, user, user)
