"""The settings of a script: Hydra's syntax for values, each kept as it was written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runmanager.app.programs.script.arguments.setting_words import parse_settings
from runmanager.errors import ConfigurationError


@pytest.mark.parametrize(
    ("word", "values", "texts"),
    [
        ("lr=0.1,1e-3", [0.1, 0.001], ["0.1", "1e-3"]),
        ("batch-size=range(16,64,16)", [16, 32, 48], ["16", "32", "48"]),
        ("lr=range(0.1,0.4,0.1)", [0.1, 0.2, 0.3], ["0.1", "0.2", "0.3"]),
        ("optim.lr=choice(1e-3, .5)", [0.001, 0.5], ["1e-3", ".5"]),
        ("flag=true,false", [True, False], ["true", "false"]),
        ("flag=True,FALSE", ["True", "FALSE"], ["True", "FALSE"]),
        ("name='a,b',\"1\"", ["a,b", "1"], ["a,b", "1"]),
        ("layers=[1, 2],[3]", ["[1, 2]", "[3]"], ["[1, 2]", "[3]"]),
        ("note=null,'null'", [None, "null"], ["null", "null"]),
        ("size=1_000", [1000], ["1_000"]),
        ("clip=inf", ["inf"], ["inf"]),
        ("out={run_dir}/logs,x", ["{run_dir}/logs", "x"], ["{run_dir}/logs", "x"]),
        ("path=/data/x:y", ["/data/x:y"], ["/data/x:y"]),
        ("empty=", [""], [""]),
    ],
)
def test_a_value_is_read_as_hydra_reads_it_and_kept_as_written(
    word: str, values: list[object], texts: list[str]
) -> None:
    (parsed,) = parse_settings([word]).sets
    assert parsed.name == word.partition("=")[0]
    assert [setting.value for setting in parsed.values] == values
    assert [type(setting.value) for setting in parsed.values] == [type(value) for value in values]
    assert [setting.text for setting in parsed.values] == texts
    assert parsed.is_axis == (len(values) > 1)


@given(st.lists(st.text("abcXYZ019.,=/ -+'\"\\()[]{}:${}", max_size=12), min_size=1, max_size=3))
def test_quoted_text_arrives_unchanged(texts: list[str]) -> None:
    from runmanager.app.request.command import quote_text

    (parsed,) = parse_settings([f"x={','.join(map(quote_text, texts))}"]).sets
    assert [setting.text for setting in parsed.values] == texts


def test_the_last_axis_varies_fastest_and_the_last_word_of_a_name_applies() -> None:
    cells = parse_settings(["a=9", "b-c=1,2", "a=x,y"]).combinations()
    assert [{name: each.text for name, each in cell.items()} for cell in cells] == [
        {"a": "x", "b-c": "1"},
        {"a": "x", "b-c": "2"},
        {"a": "y", "b-c": "1"},
        {"a": "y", "b-c": "2"},
    ]
    assert parse_settings([]).combinations() == [{}]


def test_all_faults_are_said_at_once() -> None:
    words = ["lr", "+a=1", "~a", "a/b=1", "x=a(b", "g=glob(*)", "i=interval(0,1)", "r=range(2,2)"]
    with pytest.raises(ConfigurationError) as error:
        parse_settings([*words, "good=1"])
    faults = error.value.faults
    assert len(faults) == len(words)
    assert all(f"`{word}`" in fault for word, fault in zip(words, faults, strict=True))
    assert "after `--`" in faults[0] and "'x=\"a(b\"'" in faults[4]


@pytest.mark.parametrize(
    ("word", "way_out"),
    [
        ("v=naïve,größe", """is written 'v="naïve","größe"'."""),
        ("v=1,größe", """is written 'v=1,"größe"'."""),
        ("lr=0.1,", "is written lr=0.1."),
    ],
)
def test_a_word_that_cannot_be_parsed_is_refused_with_the_way_to_write_it(word: str, way_out: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        parse_settings([word])
    (fault,) = error.value.faults
    assert way_out in fault


def test_a_hint_that_is_followed_gives_what_was_meant() -> None:
    (parsed,) = parse_settings(['v="naïve","größe"']).sets
    assert [setting.text for setting in parsed.values] == ["naïve", "größe"]


def test_a_grid_without_bounds_is_refused_before_it_is_expanded() -> None:
    with pytest.raises(ConfigurationError, match="cells"):
        parse_settings(["a=range(100000000)", "b=range(100000000)"])
