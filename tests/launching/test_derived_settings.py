"""Which settings of a grid follow from others."""

from runmanager.launching.plan import Cell, derived_settings


def cell(derived: set[str], **config: object) -> Cell:
    return Cell("", "", config, (), derived=frozenset(derived))


def test_a_setting_is_derived_if_it_is_an_interpolation_in_all_cells_that_have_it() -> None:
    cells = [cell({"a", "b", "c"}, a=1, b=2, c=3), cell({"a", "c"}, a=1, b=2, c=3), cell(set(), d=1)]
    assert derived_settings(cells, axes=["c"]) == {"a"}


def test_a_list_is_derived_if_all_but_its_interpolations_is_equal() -> None:
    one, other = ({"x": base, "sizes": [base, {"width": base, "depth": 2}]} for base in (1, 3))
    derived = {"sizes[0]", "sizes[1].width"}
    assert derived_settings([cell(derived, **one), cell(derived, **other)]) == {"sizes"}
    assert derived_settings([cell(derived, **one), cell({"sizes[0]"}, **other)]) == set()
    assert derived_settings([cell(derived, **one), cell(set(), **other)]) == set()
    assert derived_settings([cell(derived, **one)], axes=["sizes"]) == set()
