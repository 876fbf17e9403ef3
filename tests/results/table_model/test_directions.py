"""Which direction of a metric is better: as requested, declared or named."""

import pytest

from runmanager.errors import UsageError
from runmanager.results.table_model.columns import Directions


@pytest.fixture
def declaring(contents):
    """Factory of runs that declare these directions of `fid`; None declares nothing."""

    def make(*words):
        fields = [{} if word is None else {"better": {"fid": word}} for word in words]
        return contents(*(({"seed": seed}, [], each) for seed, each in enumerate(fields))).runs

    return make


@pytest.mark.parametrize(
    ("name", "words", "better", "expected"),
    [
        ("val/f1", (), None, True),
        ("ppl", (), None, False),
        ("fid", (), None, False),
        ("fid", (None, "max"), None, True),
        ("fid", ("max",), "min", False),
        ("fid", ("max", "min"), "smaller", False),
        ("zeal", (), "larger", True),
    ],
)
def test_request_then_declaration_then_name(declaring, name, words, better, expected):
    assert Directions.of_runs(declaring(*words)).required(name, better=better) is expected


def test_contradictory_declarations_are_both_named(declaring):
    runs = declaring("max", None, "min")
    names = [runs[0].record.name, runs[2].record.name]
    with pytest.raises(UsageError) as caught:
        Directions.of_runs(runs).required("fid")
    assert f"which the runs declare differently, got max ({names[0]}) and min ({names[1]})." in str(caught.value)
    assert Directions.of_runs(runs).known("fid") is None
    assert Directions.of_runs(runs).notes() == [
        f"The runs declare different directions of fid: max ({names[0]}) and min ({names[1]})."
    ]


def test_an_unknown_direction_is_asked_for_in_one_line():
    with pytest.raises(UsageError) as caught:
        Directions().required("zeal")
    assert str(caught.value) == (
        "`--better` must be max or min for 'zeal', whose name does not tell which is better, got none."
    )
