"""The space of a search: which words are dimensions, their corners, and where a stored cell lies."""

from typing import Any

import pytest

from runmanager.app.compose.search_space import Space, read_space
from runmanager.app.programs.script.arguments.setting_words import texts_of_word
from runmanager.app.request.command import in_hydras_syntax
from runmanager.errors import ConfigurationError


def space_of(*words: str, seed_names: tuple[str, ...] = ()) -> Space:
    return read_space(
        [in_hydras_syntax(word) for word in words], texts_of_word, option="--search", seed_names=seed_names
    )


def test_words_with_several_values_are_dimensions_and_seeds_are_not() -> None:
    space = space_of(
        "epochs=2", "lr=loguniform(1e-4,1e-1)", "p=uniform(0,0.5)", "w=int(interval(1,9))", "b=16,'a b'", "seed=0,1"
    )
    assert space.words((0.012, 0.25, 3, 1)) == ["epochs=2", "lr=0.012", "p=0.25", "w=3", 'b="a b"', "seed=0,1"]
    assert [(each.key, str(each)) for each in space.dimensions] == [
        ("lr", "lr from 0.0001 to 0.1 (by its logarithm)"),
        ("p", "p from 0 to 0.5"),
        ("w", "w from 1 to 9 (whole)"),
        ("b", 'b of 16, "a b"'),
    ]
    assert space_of("split=0,1", "lr=1,2", seed_names=("split",)).keys == {"lr"}
    assert space_of("lr=1,2", "lr=3,4,5").size == 3  # the last one applies


def test_the_corners_are_the_ends_of_numbers_and_all_choices() -> None:
    assert space_of("lr=interval(0.1,0.5)", "w=range(8,65,8)", "m=a,b,c", "x=1").corners() == [
        ["lr=0.1,0.5", "w=8,64", "m=a,b,c", "x=1"]
    ]
    many = space_of(*(f"x{at}=interval(0,1)" for at in range(7)))
    grids = many.corners()
    assert (
        len(grids) == 8
        and grids[0][:2] == ["x0=0.0,1.0", "x1=0.0"]
        and set(grids[-1]) == {f"x{at}=1.0" for at in range(7)}
    )


@pytest.mark.parametrize(
    ("settings", "point"),
    [
        ({"lr": 0.05, "batch_size": 32, "model.name": "cnn"}, (0.05, 1, 0)),
        ({"lr": 1, "batch-size": 16.0, "model": "mlp", "model.name": "other"}, (1, 0, 1)),
        ({"lr": 2.0, "batch_size": 32, "model": "cnn"}, None),
        ({"lr": 0.5, "batch_size": 33, "model": "cnn"}, None),
        ({"lr": True, "batch_size": 32, "model": "cnn"}, None),
        ({"batch_size": 32, "model": "cnn"}, None),
    ],
)
def test_a_stored_cell_is_found_in_the_space(settings: dict[str, Any], point: Any) -> None:
    assert space_of("lr=interval(0.01,1)", "batch-size=16,32", "model=cnn,mlp").find(settings) == point


def test_a_proposed_number_is_its_own_word() -> None:
    (lr,) = space_of("lr=interval(0.1234564,1)").dimensions
    assert lr.text(lr.rounded(0.98765432198)) == "0.987654" and lr.rounded(0.12345641) == 0.1234564


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("lr=0.1", "`--search` must have a setting with several values to search, got none"),
        ("seed=0,1", "`--search` must have a setting with several values to search, got none"),
        ("lr=interval(1,0)", "`lr=interval(1,0)` must be an interval between finite numbers"),
        ("lr=loguniform(0,1)", "must begin above 0 to be searched by its logarithm, got 0"),
        ("lr=tag(log,choice(1,2))", "must be an interval to be searched by its logarithm, got a list"),
        ("lr=tag(steps,interval(1,2))", "must have no tag but log, got steps"),
    ],
)
def test_what_cannot_be_searched_is_refused(word: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=r"must") as refused:
        space_of(word)
    assert said in refused.value.faults[0]
