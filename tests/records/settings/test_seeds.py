"""Which settings are seeds, and how a command gives several values of them."""

import pytest

from runmanager.records.settings.grid import is_seed, seed_grid, seeds_among, unknown_seed_names, with_seeds


@pytest.mark.parametrize(
    "name",
    [
        *("seed", "random_seed", "random-seed", "seed_everything", "seed-everything", "manual_seed"),
        *("model.seed", "data.split.seed", "trainer.random_seed", "trainer.random-seed"),
    ],
)
def test_the_usual_names_are_seeds(name: str) -> None:
    assert is_seed(name)


@pytest.mark.parametrize(
    "name", ["seeds", "dataset.data_seed", "data_seed", "seed.size", "Seed", "my.manual_seed", "lr"]
)
def test_other_settings_are_none(name: str) -> None:
    assert not is_seed(name)


def test_given_names_are_seeds_besides_the_usual_ones() -> None:
    given = ["dataset.data_seed", "split-*"]
    assert all(is_seed(name, given) for name in ("dataset.data_seed", "split_of_day", "split-of-day", "seed"))
    assert seeds_among(["split_b", "lr", "seed", "fold", "a.seed"], given) == ("seed", "split_b", "a.seed")


def test_a_name_that_no_setting_has_is_refused_with_the_way_out() -> None:
    settings = ["lr", "fold", "split-seed"]
    assert unknown_seed_names(["fold", "split_*"], settings) == []
    mistyped, valued = unknown_seed_names(["foldd", "seed=3,4"], settings)
    assert mistyped == (
        "`--seed-name` must name a setting of the cells, got foldd; did you mean 'fold'? a seed's value is given as a "
        "setting: write seed=0."
    )
    assert valued.endswith("write seed=3,4.")
    (unknown,) = unknown_seed_names(["*.seed"], ["lr"], "hydra.sweeper.seed_name")
    assert unknown.startswith("`hydra.sweeper.seed_name` must name a setting of the cells, got *.seed; ")


def test_repeats_that_are_all_combinations_are_given_by_the_values_of_each_seed() -> None:
    assert seed_grid([{"seed": 4}, {"seed": 3}, {"seed": 4}]) == {"seed": [3, 4]}
    both = [{"seed": one, "model.seed": other, "fold": 7} for one in (0, 1) for other in (2, 1)]
    assert seed_grid(both) == {"seed": [0, 1], "model.seed": [1, 2]}
    assert seed_grid(both[1:]) == {}, "three of four"
    assert seed_grid([{"seed": 0}]) == seed_grid([{}]) == seed_grid([]) == {}
    assert seed_grid([{"seed": 0}, {"seed": "a,b"}]) == {}


def test_the_words_of_a_command_have_all_values_of_its_seeds() -> None:
    words = ["train.py", "random-seed=3", "+model.seed=0", "seed", "lr=1"]
    grid = {"random_seed": [3, 4], "model.seed": [0, 1], "seed": [0, 1]}
    assert with_seeds(words, grid) == ["train.py", "random-seed=3,4", "+model.seed=0,1", "seed", "lr=1"]
