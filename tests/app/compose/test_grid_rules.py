"""Zipped axes, points and exclusions against an expansion by brute force."""

import itertools
import json
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runmanager.app.compose.grid_rules import GridRules, KnownSettings, read_points
from runmanager.app.driver.program import Storage
from runmanager.app.programs.script.arguments.setting_words import parse_settings
from runmanager.app.programs.script.script import find_script
from runmanager.app.programs.script.script_program import ScriptOptions, ScriptProgram
from runmanager.app.request.sweep_request import SweepRequest, flag_of
from runmanager.errors import ConfigurationError, UsageError

NAMES = ("lr", "batch-size", "seed", "deep.width")
VALUES = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, 1.5]), st.sampled_from(["adam", "a b", "x,y", "1"]))
CONDITIONS = {
    "lr > 0 and seed == 1": lambda cell: is_above(cell.get("lr"), 0) and cell.get("seed") == 1,
    "batch_size in [1, 2] or lr == adam": lambda cell: cell.get("batch-size") in (1, 2) or cell.get("lr") == "adam",
    "not seed <= 1": lambda cell: not is_at_most(cell.get("seed"), 1),
    "deep.width == 'x,y'": lambda cell: cell.get("deep.width") == "x,y",
}


def is_above(value: Any, bound: int) -> bool:
    return isinstance(value, int | float) and value > bound


def is_at_most(value: Any, bound: int) -> bool:
    return isinstance(value, int | float) and value <= bound


@st.composite
def grids(draw: st.DrawFn) -> tuple[dict[str, list[Any]], list[str], list[dict[str, Any]]]:
    """Axes, the names of those that are zipped, and points of other settings."""
    names = draw(st.permutations(NAMES))
    num_axes = draw(st.integers(0, 3))
    zipped = list(names[:num_axes][: draw(st.sampled_from([0, 2, 3]))])
    zipped = zipped if len(zipped) > 1 else []
    length = draw(st.integers(1, 3))
    axes = {
        name: draw(
            st.lists(VALUES, min_size=length, max_size=length)
            if name in zipped
            else st.lists(VALUES, min_size=1, max_size=3)
        )
        for name in draw(st.permutations(names[:num_axes]))
    }
    point = st.dictionaries(st.sampled_from(names[num_axes:]), VALUES, min_size=1)
    return axes, zipped, draw(st.lists(point, max_size=3))


def written(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


@given(grids(), st.sampled_from([None, *CONDITIONS]))
def test_cells_are_those_of_an_expansion_by_brute_force(
    tmp_path_factory: pytest.TempPathFactory,
    grid: tuple[dict[str, list[Any]], list[str], list[dict[str, Any]]],
    condition: str | None,
) -> None:
    axes, zipped, points = grid
    file = tmp_path_factory.getbasetemp() / "points.json"
    file.write_text(json.dumps(points))
    expected = []
    for point in points or [{}]:
        for indices in itertools.product(*(range(len(values)) for values in axes.values())):
            chosen = dict(zip(axes, indices, strict=True))
            if len({chosen[name] for name in zipped}) <= 1:
                expected.append(point | {name: axes[name][index] for name, index in chosen.items()})

    rules = GridRules.read(SweepRequest(zip=zipped, points=str(file) if points else None, exclude=condition), str)
    parsed = parse_settings([f"{name}={','.join(map(written, values))}" for name, values in axes.items()], rules)
    cells = [{name: each.value for name, each in cell.items()} for cell in parsed.combinations()]
    by_text = [sorted(map(repr, cell.items())) for cell in cells]
    assert sorted(by_text) == sorted(sorted(map(repr, cell.items())) for cell in expected)
    if not zipped:  # the order of a zipped axis is that of its group's first
        assert by_text == [sorted(map(repr, cell.items())) for cell in expected]
    if condition is None:
        return
    try:
        kept = parsed.rules.kept([KnownSettings(cell) for cell in cells])
    except ConfigurationError:  # no cell has a setting that the condition names
        assert any(all(name not in cell for cell in cells) for name in NAMES)
        return
    assert kept == [not CONDITIONS[condition](cell) for cell in cells]


def test_what_is_wrong_with_a_rule_is_named() -> None:
    def fault(words: list[str], **given: Any) -> str:
        with pytest.raises(ConfigurationError) as error:
            rules = GridRules.read(SweepRequest(**given), flag_of)
            parsed = parse_settings(words, rules)
            rules.kept([KnownSettings({name: each.value for name, each in c.items()}) for c in parsed.combinations()])
        return str(error.value)

    assert fault(["lr=1,2,3", "size=1,2"], zip=["lr", "size"]) == (
        "`--zip` must name axes of equal length, got 3 values of lr and 2 values of size."
    )
    assert fault(["lr=1,2"], zip=["lr", "sise"]).startswith("`--zip` must name settings of the grid, got sise;")
    assert "at least two axes" in fault(["lr=1,2"], zip=["lr"])
    assert "once, got lr" in fault(["lr=1,2", "a=1,2", "b=1,2"], zip=[["lr", "a"], ["lr", "b"]])
    assert fault(["lr=1,2"], exclude="rl > 1") == "`--exclude` must name settings, got 'rl'; did you mean 'lr'?"
    assert fault(["lr=1,2"], exclude="lr = 1").startswith("`--exclude` must be a condition, got 'lr = 1'")
    assert "must have at most 100,000 cells" in fault(
        ["a=range(1000)", "b=range(1000)", "c=range(1000)"], zip=["a", "b"]
    )


POINTS = {
    "points.yaml": "- {lr: 1e-3, note: 'a,b', fast: true}\n- {lr: 2, note: '1'}\n",
    "points.json": '[{"lr": 0.001, "note": "a,b", "fast": true}, {"lr": 2, "note": "1"}]',
    "points.csv": '\ufefflr,note,fast\n1e-3,"a,b",true\n2,"""1""",\n',
}


def test_a_file_of_each_kind_gives_the_same_points(tmp_path: Path) -> None:
    for name, text in POINTS.items():
        (tmp_path / name).write_text(text)
        points = read_points(str(tmp_path / name), key="--points")
        rules = GridRules(points=points)
        cells = [
            {name: each.value for name, each in c.items()} for c in parse_settings(["seed=0"], rules).combinations()
        ]
        assert cells == [
            {"lr": 0.001, "note": "a,b", "fast": True, "seed": 0},
            {"lr": 2, "note": "1", "seed": 0},
        ], name


@pytest.mark.parametrize(
    ("name", "text", "cause"),
    [
        ("points.txt", "", ".yaml, .json or .csv"),
        ("points.yaml", None, "exists"),
        ("points.yaml", "lr: 1", "list of mappings"),
        ("points.yaml", "- {lr: [1", "readable"),
        (
            "points.yaml",
            "- &a {x: 1}\n"
            + "".join(f"- &{b} {{<<: [*{a}, *{a}]}}\n" for a, b in itertools.pairwise(string.ascii_letters)),
            "at most",
        ),
        ("points.json", "[{}]", "no settings"),
        ("points.json", "[]", "at least one point"),
        ("points.json", "[1", "readable"),
        ("points.csv", "lr,lr\n1,2\n", "each once"),
        ("points.csv", "lr,seed\n1\n", "2 fields"),
        ("points.csv", "lr\n", "at least one point"),
        ("points.csv", "", "at least one point"),
    ],
)
def test_a_file_without_points_is_refused_in_one_line(tmp_path: Path, name: str, text: str | None, cause: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError) as error:
        read_points(str(tmp_path / name), key="--points")
    message = str(error.value)
    assert message.startswith("`--points` must") and cause in message and "\n" not in message


def test_a_name_of_a_seed_must_be_that_of_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rules = GridRules.read(SweepRequest(seed_name=["split*"]), flag_of)
    assert rules.resolved({"split-seed": 2}, []).seed_names == ("split*",)
    assert rules.seed_faults(["lr", "split-seed"]) == []
    (line,) = rules.seed_faults(["lr"])
    assert line.startswith("`--seed-name` must name a setting of the cells, got split*")
    Path("train.py").touch()
    program = ScriptProgram(
        find_script("train.py", is_module=False), ["lr=1"], ScriptOptions(rules=rules), Storage("mine")
    )
    with pytest.raises(ConfigurationError, match="must name a setting of the cells, got split"):
        program.compose()
