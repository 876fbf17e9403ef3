"""The search takes what is faster, comes back to what another change may have made worth it, and ends in time."""

from collections.abc import Callable, Mapping, Sequence

import pytest

from runmanager.race.heat import Factor, Heat, Settings
from runmanager.race.search import Search, Tuning
from runmanager.results.stats.descriptive import Estimate

VALUES = {"loader": ("plain", "fast"), "threads": ("2", "1"), "layout": ("rows", "columns")}
FIRST = {name: values[0] for name, values in VALUES.items()}


class Space:
    """Three settings with two values each; `phases` of a step that they can shorten."""

    def __init__(self, phases: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self.phases = phases or {}

    def factors(self, chosen: Settings) -> tuple[Sequence[Factor], Mapping[str, str]]:
        now = {**FIRST, **chosen}
        found = [
            Factor(name, [{name: value} for value in values if value != now[name]], self.phases.get(name, ()))
            for name, values in VALUES.items()
        ]
        return found, {"graphs": "only cuda captures steps"}

    def changes(self, chosen: Settings) -> dict[str, str]:
        return {name: value for name, value in chosen.items() if value != FIRST[name]}


class Track:
    """Measures exactly what `speed` says, in ten seconds a heat of a clock of its own."""

    def __init__(self, speed: Callable[[Mapping[str, str]], float | str]) -> None:
        self.speed = speed
        self.now = 0.0
        self.heats: list[tuple[list[dict[str, str]], bool]] = []
        self.interrupted_in = 0
        self.unmeasured = False
        self.measured_heats = 99  # in later ones nothing is measured
        self.width = 0.02  # of each interval, to both sides

    def needed(self, contenders: Sequence[Settings]) -> float:
        return 10.0

    def race(self, contenders: Sequence[Settings], *, seconds: float, is_last: bool = False) -> Heat:
        self.heats.append(([dict(each) for each in contenders], is_last))
        self.now += 10.0
        found = [self.speed({**FIRST, **each}) for each in contenders]
        first = found[0]
        ratios = {
            at: each / first
            for at, each in enumerate(found)
            if at and isinstance(each, float) and isinstance(first, float)
        }
        return Heat(
            {
                at: Estimate(each, each * (1 - self.width), each * (1 + self.width))
                for at, each in ratios.items()
                if not self.unmeasured and len(self.heats) <= self.measured_heats
            },
            {at: each for at, each in enumerate(found) if isinstance(each, str)},
            fastest=max(range(len(found)), key=lambda at: ratios.get(at, 1.0)),
            is_interrupted=len(self.heats) == self.interrupted_in,
        )


def search(
    track: Track, *, seconds: float = 1000.0, space: Space | None = None, shares: Mapping[str, float] | None = None
) -> Tuning:
    return Search(
        space or Space(),
        track,
        seconds=seconds,
        began=0.0,
        shares=shares or {},
        say=lambda line: None,
        clock=lambda: track.now,
    ).run()


def test_the_fastest_values_are_taken_and_measured_against_the_given_ones_at_last() -> None:
    track = Track(lambda each: 1.0 + (each["loader"] == "fast") * 0.5 - (each["threads"] == "1") * 0.3)
    found = search(track)
    assert found.chosen == {"loader": "fast"}
    assert track.heats[-1] == ([{}, {"loader": "fast"}], True)
    assert found.gain is not None and found.gain.value == 1.5
    results = {each.factor: each.result for each in found.raced}
    assert results == {"loader": "taken", "threads": "slower", "layout": "no gain"}
    assert found.not_raced == {"graphs": "only cuda captures steps"}


def test_a_value_that_is_hardly_faster_is_not_taken() -> None:
    found = search(Track(lambda each: 1.0 + (each["loader"] == "fast") * 0.019 + (each["layout"] == "columns") * 0.021))
    assert found.chosen == {"layout": "columns"}
    assert {each.result for each in found.raced if each.factor == "loader"} == {"not known"}


def test_what_only_pays_with_a_later_change_is_found_in_a_second_heat() -> None:
    def speed(each: Mapping[str, str]) -> float:
        if each["layout"] == "rows":
            return 1.0 - (each["loader"] == "fast") * 0.1
        return 1.5 + (each["loader"] == "fast") * 0.5

    found = search(Track(speed))
    assert found.chosen == {"layout": "columns", "loader": "fast"}
    assert [each.result for each in found.raced if each.factor == "loader"] == ["slower", "taken"]


def test_a_value_that_a_later_change_makes_useless_is_given_up() -> None:
    def speed(each: Mapping[str, str]) -> float:
        if each["layout"] == "rows":
            return 1.0 + (each["loader"] == "fast") * 0.2
        return 2.0 - (each["loader"] == "fast") * 0.5

    track = Track(speed)
    found = search(track)
    assert found.chosen == {"layout": "columns"}
    assert [each.result for each in found.raced if each.factor == "loader"] == ["taken", "taken"]
    assert track.heats[-1][0] == [{}, {"layout": "columns"}]


def test_a_value_that_fails_has_its_reason_and_is_not_taken() -> None:
    track = Track(lambda each: "out_of_memory: no room" if each["layout"] == "columns" else 1.0)
    found = search(track)
    (failed,) = [each for each in found.raced if each.result == "failed"]
    assert failed.settings == {"layout": "columns"} and failed.failure == "out_of_memory: no room"
    assert found.chosen == {} and found.gain is None
    assert not any(is_last for _, is_last in track.heats)  # there is no gain to measure


def test_it_ends_in_time_and_names_what_was_left_out() -> None:
    track = Track(lambda each: 1.0 + (each["loader"] == "fast"))
    found = search(track, seconds=30.0)
    assert track.now <= 30.0
    assert found.gain is not None  # its time was kept
    assert found.not_raced["layout"] == "no time was left"
    # Three heats of ten seconds in seven tenths of the time; the last one has the others.
    assert found.enough_seconds == 60  # with a margin
    again = search(Track(track.speed), seconds=60.0)
    assert again.enough_seconds is None and set(again.not_raced) == {"graphs"}


def test_the_time_of_the_gain_goes_to_other_settings_where_nothing_is_taken() -> None:
    found = search(Track(lambda each: 1.0), seconds=40.0)  # seven tenths have room for two heats
    assert [each.factor for each in found.raced] == ["loader", "threads", "layout"]
    assert set(found.not_raced) == {"graphs"} and found.enough_seconds is None
    track = Track(lambda each: 1.0 + (each["layout"] == "columns"))
    assert search(track, seconds=40.0).gain is not None and track.now == 40.0


def test_a_value_of_which_nothing_is_known_is_raced_again_while_there_is_time() -> None:
    track = Track(lambda each: 1.0 - (each["loader"] == "fast") * 0.06)
    track.width = 1.0
    found = search(track, seconds=80.0)
    assert track.now == 60.0 and found.enough_seconds is None
    assert [(each.factor, each.result) for each in found.raced] == [
        (name, "not known") for name in ("loader", "threads", "layout") * 2
    ]
    assert found.latest() == found.raced[3:]


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_heat_that_measures_nothing_takes_nothing_from_what_was_measured(is_interrupted: bool) -> None:
    track = Track(lambda each: 1.0)
    track.width, track.measured_heats = 1.0, 3
    track.interrupted_in = 4 if is_interrupted else 0
    found = search(track, seconds=80.0)
    results = [(each.factor, each.result) for each in found.raced]
    assert results[:4] == [
        *((name, "not known") for name in ("loader", "threads", "layout")),
        ("loader", "not measured"),
    ]
    assert found.latest() == found.raced[:3] and found.enough_seconds is None


def test_a_value_that_was_not_measured_needs_more_than_the_seconds_given() -> None:
    track = Track(lambda each: 1.0)
    track.unmeasured = True
    found = search(track, seconds=300.0)
    assert {(each.result, each.failure) for each in found.raced} == {("not measured", "too little time")}
    assert found.enough_seconds == 600


def test_a_value_whose_interval_includes_1_is_taken_on_trial() -> None:
    track = Track(lambda each: 1.0 + (each["loader"] == "fast") * 0.1 + (each["layout"] == "columns") * 0.5)
    track.width = 0.2
    results = {each.factor: each.result for each in search(track).raced if each.result.startswith("taken")}
    assert results == {"loader": "taken on trial", "layout": "taken"}


def test_a_value_that_is_known_too_badly_is_not_taken_on_trial() -> None:
    track = Track(lambda each: 1.0 + (each["loader"] == "fast") * 0.18)
    track.width = 1.5
    found = search(track)
    assert found.chosen == {} and "not known" in {each.result for each in found.raced if each.factor == "loader"}


def test_settings_found_that_fail_in_the_last_heat_are_not_chosen() -> None:
    def speed(each: Mapping[str, str]) -> float | str:
        is_last = track.heats[-1][1]
        return "exit: gone" if is_last and each["loader"] == "fast" else 1.0 + (each["loader"] == "fast")

    track = Track(speed)
    found = search(track)
    assert (found.chosen, found.gain, found.broken) == ({}, None, "")
    assert found.failed == "loader=fast: exit: gone" and found.enough_seconds is None


def test_given_settings_that_fail_leave_nothing_to_race() -> None:
    track = Track(lambda each: "exit: gone" if each == FIRST else 1.0)
    found = search(track)
    assert found.broken == "exit: gone" and len(track.heats) == 1 and found.enough_seconds is None
    (raced,) = found.raced
    assert (raced.result, raced.failure) == (
        "not measured",
        "the settings that it was raced against failed: exit: gone",
    )
    assert found.not_raced["layout"] == "the settings given failed"


def test_settings_found_that_fail_later_are_the_reason_of_what_is_not_measured() -> None:
    def speed(each: Mapping[str, str]) -> float | str:
        return "exit: gone" if len(track.heats) == 2 and each["threads"] == "2" else 1.0 + (each["loader"] == "fast")

    track = Track(speed)
    found = search(track)
    assert found.chosen == {"loader": "fast"} and not found.broken and not found.failed and found.gain is not None
    (raced,) = [each for each in found.raced if each.factor == "threads"]
    assert raced.failure == "the settings that it was raced against failed: exit: gone"


def test_a_gain_that_cannot_be_measured_in_time_is_not_begun() -> None:
    track = Track(lambda each: 1.0 + (each["loader"] == "fast"))
    found = search(track, seconds=15.0)
    assert track.now == 10.0 and found.chosen == {"loader": "fast"} and found.gain is None
    assert found.enough_seconds == 60


def test_a_phase_that_takes_no_time_is_not_worth_a_race() -> None:
    track = Track(lambda each: 1.0)
    shares = {"data": 0.004, "compute": 0.996}
    found = search(track, space=Space({"loader": ("data",), "layout": ("compute",)}), shares=shares)
    assert found.not_raced["loader"] == "data takes 0.4% of a step's time, so it cannot gain more"
    assert {each.factor for each in found.raced} == {"threads", "layout"}


def test_an_interrupt_leaves_what_is_known() -> None:
    track = Track(lambda each: 1.0 + (each["loader"] == "fast"))
    track.interrupted_in = 1
    found = search(track)
    assert found.is_interrupted and len(track.heats) == 1 and found.enough_seconds is None
    assert found.not_raced == {
        "threads": "the race was interrupted",
        "layout": "the race was interrupted",
        "graphs": "only cuda captures steps",
    }
    assert found.chosen == {"loader": "fast"} and found.gain is None
