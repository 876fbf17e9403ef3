"""Lists of names in options."""

import pytest

from runmanager.results.tables.query import in_list, split_names


@pytest.mark.parametrize(
    ("text", "separator", "names"),
    [
        ("lr, val f1 ,fid", ",", ["lr", "val f1", "fid"]),
        ("lr,`f1, macro`,`val f1`", ",", ["lr", "f1, macro", "val f1"]),
        ("lr:device:`val:f1`", ":", ["lr", "device", "val:f1"]),
        ("lr,,device", ",", ["lr", "", "device"]),
        ("a`b,c", ",", ["a`b", "c"]),
        ("`", ",", ["`"]),
    ],
)
def test_names_are_split_outside_backticks(text: str, separator: str, names: list[str]) -> None:
    assert split_names(text, separator) == names


def test_a_list_of_names_is_split_into_them() -> None:
    names = ["lr", "f1, macro", "val:f1"]
    assert split_names(",".join(map(in_list, names)), ",") == names
