"""A search over the settings of the built-in job."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("optuna")

SPACE = ("-m", "lr=tag(log,interval(0.001,1))", "batch_size=range(16,65,16)", "name=found")
SEARCH = ("hydra.sweeper.search=tpe", "hydra.sweeper.trials=3")


def test_trials_of_the_built_in_job(
    command: Callable[..., Any], sweep: Callable[[str], Any], tiny: tuple[str, ...]
) -> None:
    tiny = tuple(word for word in tiny if not word.startswith("batch_size"))
    done = command(*tiny, *SPACE, *SEARCH, "seed=0,1")
    assert done.status == 0, done.err
    records = sweep("found").records
    points = {(each.config["lr"], each.config["batch_size"]) for each in records}
    assert len(points) == 3 and len(records) == 6
    assert all(0.001 <= lr <= 1 and size in (16, 32, 48, 64) for lr, size in points)

    more = command(*tiny, *SPACE, "hydra.sweeper.search=tpe", "hydra.sweeper.trials=4", "seed=0,1")
    assert more.status == 0 and "3 tried already" in more.out and "other settings" not in more.out
    assert len(sweep("found").records) == 8


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("lr=interval(-1,1)",), "`lr` must be"),  # at a corner
        (("lr=interval(0.1,1)", "measure=paired", "device=cpu,cuda"), "be left out where cells take turns"),
    ],
)
def test_corners_are_checked_before_the_first_run(
    words: tuple[str, ...], said: str, command: Callable[..., Any], sweep: Callable[[str], Any], tiny: tuple[str, ...]
) -> None:
    done = command("-m", *tiny, *words, *SEARCH, "name=found")
    assert done.status == 2 and said in done.err, done.err
    assert not sweep("found").paths.root.exists()
