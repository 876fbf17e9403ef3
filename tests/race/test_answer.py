"""The answer claims nothing beyond an interval, and comes last."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from runmanager.race.answer import Answer, show_answer, write_tuning
from runmanager.race.heat import Raced, line_of
from runmanager.race.search import Tuning
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
        (
            Tuning(CHOSEN, enough_seconds=90),
            "The gain was not measured; `--seconds 90` should do. The fastest settings by then:",
            True,
        ),
        (
            Tuning(CHOSEN, is_interrupted=True),
            "The gain was not measured, as the race was interrupted. The fastest settings by then:",
            True,
        ),
        (
            Tuning(
                raced=[
                    raced(Estimate(0.97, 0.9, 1.04)),
                    Raced("loader", {"loader": "resident"}, None, "failed", "no room"),
                ]
            ),
            "No candidate is faster than the settings given by more than 4% (1 failed or not measured).",
            False,
        ),
        (
            Tuning(raced=[raced(Estimate(0.99, 0.95, 1.031))]),
            "No candidate is faster than the settings given by more than 4%.",
            False,
        ),
        (
            Tuning(raced=[raced(Estimate(0.94, 0.45, 1.962), "not known")]),
            "No candidate was shown to be faster than the settings given; one may be, by up to 97%.",
            False,
        ),
        (
            Tuning(raced=[raced(Estimate(1.0, 0.5, 1.5), "not known"), raced(Estimate(0.9, 0.8, 0.99), "slower")]),
            "No candidate is faster than the settings given.",  # the later heat counts
            False,
        ),
        (
            Tuning(raced=[raced(Estimate(1.2, 1.1, 1.3), "taken"), raced(Estimate(1.1, 1.05, 1.15), "taken")]),
            "No candidate stayed faster than the settings given: what was taken lost in a later race.",
            False,
        ),
        (
            Tuning(failed="channels_last=true: exit: gone"),
            "The settings found failed while their gain was measured (channels_last=true: exit: gone). None is faster.",
            False,
        ),
        (
            Tuning(failed="channels_last=true: exit: gone", broken="exit: too"),
            "The settings given (exit: too) and those found failed while their gain was measured (channels_last=true: "
            "exit: gone). None is faster.",
            False,
        ),
        (
            Tuning(CHOSEN, broken="exit: gone"),
            "The settings given failed while the others trained (exit: gone). To use what did not:",
            True,
        ),
        (
            Tuning(raced=[raced(None, "not measured")], broken="exit: gone"),
            "The settings given failed (exit: gone), so nothing could be raced against them.",
            False,
        ),
        (
            Tuning(raced=[raced(Estimate(0.5, 0.4, 0.6))]),
            "No candidate is faster than the settings given.",
            False,
        ),
        (
            Tuning(raced=[raced(Estimate(1.0, 0.1, 10.0))]),
            "No candidate was shown to be faster, on a machine too restless to say more (is it busy?).",
            False,
        ),
        (
            Tuning(raced=[raced(None, "not measured")], enough_seconds=90),
            "Nothing was measured; `--seconds 90` should do.",
            False,
        ),
        (
            Tuning(raced=[raced(None, "not measured")], is_interrupted=True),
            "Nothing was measured, as the race was interrupted.",
            False,
        ),
        (Tuning(raced=[raced(None, "failed", "no room")]), "Nothing was measured.", False),
    ],
)
def test_the_answer(found: Tuning, first: str, has_command: bool) -> None:
    lines = answer(found).lines()
    assert answer(found).is_shown == (found.gain is not None and found.gain.low > 1)
    assert lines == [first, *([f"  {COMMAND}"] if has_command else [])]


def shown(found: Tuning) -> list[str]:
    output = io.StringIO()
    show_answer(answer(found), Console(file=output, width=200))
    return output.getvalue().splitlines()


def test_a_narrow_terminal_gets_whole_words_and_a_command_in_one_line() -> None:
    settings = {"loader": "dataloader", "num_workers": "2"}
    rows = [
        Raced("loader", settings, Estimate(1.6, 1.1, 2.3), "taken"),
        Raced("optimizer.fused", {"optimizer.fused": "true"}, None, "failed", "exit: the process ended with status 1"),
    ]
    found = Tuning(settings, Estimate(1.5, 1.2, 1.9), rows, {"compile": "it is raced from `--seconds 300` on"})
    command = f"runmanager run {'dataset=fake ' * 9}num_workers=2"
    output = io.StringIO()
    show_answer(Answer(found, command, device="cpu", given="dataset=fake"), Console(file=output, width=80))
    lines = output.getvalue().splitlines()
    assert lines[-1] == f"  {command}" and max(map(len, lines[:-1])) <= 80
    words = " ".join(lines).split()
    assert {"loader=dataloader", "num_workers=2", "optimizer.fused=true", "taken", "1.10", "process"} <= set(words)
    assert any("`--seconds 300`" in line for line in lines)


def test_a_machine_that_is_busy_is_named_beside_a_gain_that_was_not_shown() -> None:
    (first, *_) = answer(Tuning(CHOSEN, Estimate(1.5, 0.5, 4.5))).lines()
    assert first == (
        "Not shown to be faster: the best settings found are 1.50 times [0.50, 4.50] as fast as with batch_size=100, "
        "on a machine too restless to say more (is it busy?). To use them all the same:"
    )
    (first, *_) = answer(Tuning(CHOSEN, Estimate(1.5, 1e-9, 5584335.47))).lines()
    assert "1.50 times [under 0.01, over 100] as fast" in first


def test_no_row_and_no_line_has_digits_that_say_nothing() -> None:
    wild = raced(Estimate(1.18, 1e-9, 2082797435.29), "not known")
    (row,) = [line for line in shown(Tuning(raced=[wild])) if line.startswith("channels_last")]
    assert row.endswith(" 1.18   under 0.01 to over 100  not known")
    assert line_of(wild).endswith("is 1.18 times as fast [under 0.01, over 100], not known")


def test_why_a_value_was_not_measured_stands_in_its_row() -> None:
    lines = shown(Tuning(raced=[raced(None, "not measured", "too little time")], enough_seconds=90))
    assert lines[2].endswith("not measured: too little time")
    assert not any("Speed:" in line for line in lines), "there is none to explain"


def test_the_legend_explains_what_the_table_has() -> None:
    once, on_trial = raced(Estimate(1.6, 1.1, 2.3), "taken"), raced(Estimate(1.1, 0.8, 1.4), "taken on trial")
    dropped = raced(Estimate(0.5, 0.4, 0.6), "dropped")
    about = ("Speed:", "Taken on trial:", "A setting whose values are listed again", "Dropped:")
    for rows, explained in (([once], about[:1]), ([on_trial], about[:2]), ([once, on_trial], about[:3])):
        lines = shown(Tuning(CHOSEN, Estimate(1.5, 1.2, 1.9), rows))
        assert [each for each in about for line in lines if line.startswith(each)] == list(explained)
    assert any(line.startswith("Dropped:") for line in shown(Tuning(CHOSEN, Estimate(1.5, 1.2, 1.9), [once, dropped])))


def test_an_interrupt_and_the_seconds_that_should_do_are_said() -> None:
    measured = raced(Estimate(0.9, 0.8, 1.1))
    lines = shown(Tuning(raced=[measured], is_interrupted=True))
    assert "Interrupted: this is what is known so far." in lines
    assert "A race is not resumed: the same command begins a new one." in lines
    assert "`--seconds 90` should do to race all settings." in shown(Tuning(raced=[measured], enough_seconds=90))
    assert not any("Interrupted" in line or "--seconds" in line for line in shown(Tuning(raced=[measured])))


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
    assert text[2].split()[:2] == ["channels_last", "channels_last=true"]
    assert text[2].endswith("1.10 to 2.30  taken")
    assert text[3].endswith("failed: out_of_memory: no room")
    assert "Not raced: graphs: only cuda captures steps." in text
    assert text[-3:] == ["", *answer(found).lines()]

    write_tuning(tmp_path / "race", answer(found))
    kept = json.loads((tmp_path / "race" / "tune.json").read_text())
    assert kept["command"] == COMMAND and kept["gain"]["low"] == 1.2 and kept["chosen"] == CHOSEN
