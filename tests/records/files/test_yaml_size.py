"""The number of values that a YAML document stands for, before they are built."""

import pytest
import yaml

from runmanager.records.files.file_errors import require_few_values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1", 1),
        ("[1, 2, 3]", 4),
        ("{a: 1, b: [2]}", 4),
        ("{[1, 2]: 3}", 5),  # a key that is no word counts
        ("a: &x [1, 2]\nb: *x\nc: [*x, *x]", 14),  # what is shared counts each time
        ("a: &x {b: 1}\nc:\n  <<: *x", 6),
    ],
)
def test_every_value_counts_and_names_do_not(text: str, values: int) -> None:
    document = yaml.compose(text)
    require_few_values(document, most=values)
    with pytest.raises(ValueError, match=f"^it must hold at most {values - 1} values, got more$"):
        require_few_values(document, most=values - 1)


def test_a_few_lines_may_stand_for_billions() -> None:
    lines = ["a0: &a0 [1, 1]", *(f"a{at}: &a{at} [*a{at - 1}, *a{at - 1}]" for at in range(1, 40))]
    with pytest.raises(ValueError, match="at most 1,000,000 values"):
        require_few_values(yaml.compose("\n".join(lines)), most=1_000_000)


@pytest.mark.parametrize("text", ["&x [*x]", "a: &x {b: [*x]}"])
def test_a_value_that_contains_itself_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must not contain itself"):
        require_few_values(yaml.compose(text), most=1000)


def test_an_empty_document_has_no_values() -> None:
    require_few_values(yaml.compose(""), most=0)
