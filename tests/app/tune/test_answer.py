"""The answer claims nothing beyond an interval, and comes last."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from runmanager.app.tune.answer import Answer, show_answer, write_tuning
from runmanager.app.tune.search import Raced, Tuning
from runmanager.results.stats.descriptive import Estimate

COMMAND = "runmanager run channels_last=true"
CHOSEN = {"channels_last": "true"}


def raced(estimate: Estimate | None, result: str = "no gain", failure: str = "") -> Raced:
    return Raced("channels_last", CHOSEN, estimate, result, failure)


def answer(found: Tuning) -> Answer:
    return Answer(found, COMMAND, device="cpu", given="batch_size=100")


@pytest.mark.parametrize(
    ("found", "first", "has_command"),
    [
        (
            Tuning(CHOSEN, Estimate(1.5, 1.2, 1.9)),
            "1.50 times [1.20, 1.90] as fast as with batch_size=100. To use it:",
            True,
        ),
        (
            Tuning(CHOSEN, Estimate(1.004, 1.001, 1.007)),
            "1.0040 times [1.0010, 1.01] as fast as with batch_size=100. To use it:",
            True,
        ),
        (
            Tuning(CHOSEN, Estimate(1.05, 0.98, 1.12)),
            "Not shown to be faster: the best settings found are 1.05 times [0.98, 1.12] as fast as with "
            "batch_size=100. To use them all the same:",
            True,
        ),
        (
            Tuning(CHOSEN, Estimate(0.99, 0.9, 1.1)),
            "Not shown to be faster: the best settings found are 0.99 times [0.90, 1.10] as fast as with "
            "batch_size=100; none of those raced is worth a change.",
            False,
        ),
        (Tuning(CHOSEN), "The gain was not measured; `--seconds` gives more time. The fastest settings by then:", True),
        (
            Tuning(raced=[raced(Estimate(0.97, 0.9, 1.04)), raced(None, "failed", "no room")]),
            "No candidate is faster than the settings given by more than 4% (1 failed or not measured).",
            False,
        ),
        (
            Tuning(raced=[raced(Estimate(0.5, 0.4, 0.6))]),
            "No candidate is faster than the settings given.",
            False,
        ),
        (
            Tuning(raced=[raced(Estimate(1.0, 0.1, 10.0))]),
            "No candidate was shown to be faster, on a machine too restless to say more: is it busy?",
            False,
        ),
        (Tuning(raced=[raced(None, "not measured")]), "Nothing was measured; `--seconds` gives more time.", False),
    ],
)
def test_the_answer(found: Tuning, first: str, has_command: bool) -> None:
    lines = answer(found).lines()
    assert answer(found).is_shown == (found.gain is not None and found.gain.low > 1)
    assert lines == [first, *([f"  {COMMAND}"] if has_command else [])]


def test_it_comes_last_after_the_effects_and_what_was_not_raced(tmp_path: Path) -> None:
    found = Tuning(
        CHOSEN,
        Estimate(1.5, 1.2, 1.9),
        [raced(Estimate(1.6, 1.1, 2.3), "taken"), raced(None, "failed", "out_of_memory: no room")],
        {"graphs": "only cuda captures steps"},
    )
    output = io.StringIO()
    show_answer(answer(found), Console(file=output, width=200))
    text = output.getvalue().splitlines()
    assert text[1].split() == ["setting", "value", "speed", "95%", "interval", "result"]
    assert text[2].split()[:2] == ["channels_last", "channels_last=true"] and text[2].endswith("1.10 to 2.30  taken")
    assert text[3].endswith("failed: out_of_memory: no room")
    assert "Not raced: graphs: only cuda captures steps." in text
    assert text[-3:] == ["", *answer(found).lines()]

    write_tuning(tmp_path / "race", answer(found))
    kept = json.loads((tmp_path / "race" / "tune.json").read_text())
    assert kept["command"] == COMMAND and kept["gain"]["low"] == 1.2 and kept["chosen"] == CHOSEN
