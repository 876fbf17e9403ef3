"""Settings as plain values, flattened, and compared without confusing two values."""

import dataclasses
import enum
import functools
import json
import math
import subprocess
import sys
from argparse import Namespace
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runmanager.errors import UsageError
from runmanager.records.settings.grid import expand_grid
from runmanager.records.settings.values import differing_settings, flatten, plain_settings

KEYS = st.text(st.characters(categories=["Ll"], max_codepoint=127), min_size=1, max_size=6)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
NESTED = st.recursive(
    st.dictionaries(KEYS, SCALARS | st.lists(SCALARS, max_size=3), max_size=4),
    lambda inner: st.dictionaries(KEYS, inner | SCALARS, max_size=4),
    max_leaves=12,
)


@given(NESTED)
def test_flatten_keeps_every_leaf_under_its_path(config: dict[str, object]) -> None:
    def leaf(path: str) -> object:
        found: object = config
        for part in path.split("."):
            assert isinstance(found, dict)
            found = found[part]
        return found

    def num_leaves(node: object) -> int:
        return sum(map(num_leaves, node.values())) if isinstance(node, dict) and node else 1

    flat = flatten(config)
    assert all(leaf(path) is value for path, value in flat.items())
    assert len(flat) == (num_leaves(config) if config else 0)
    assert flatten(flat) == flat


@given(
    st.lists(st.dictionaries(KEYS, st.sampled_from([0, False, 0.0, 1, True, "1", None, "x"]), max_size=3), max_size=4)
)
def test_differing_settings_have_more_than_one_value(cells: list[dict[str, object]]) -> None:
    names = dict.fromkeys(name for cell in cells for name in cell)
    # repr distinguishes 1, 1.0, True and '1'.
    expected = [name for name in names if len({repr(cell[name]) if name in cell else "" for cell in cells}) > 1]
    assert differing_settings(cells) == expected


def test_values_that_are_equal_in_python_may_differ() -> None:
    for one, other in ((1, True), (0, 0.0), (False, 0)):
        assert differing_settings([{"x": one}, {"x": other}]) == ["x"]


def test_setting_that_some_cells_lack_differs() -> None:
    assert differing_settings([{"lr": 1, "model.depth": 8}, {"lr": 1}]) == ["model.depth"]
    assert differing_settings([{"lr": 1}]) == differing_settings([]) == []


def test_function_becomes_its_qualified_name() -> None:
    """Its text contains an address, which differs between processes."""
    assert plain_settings({"f": json.dumps, "g": len}) == {"f": "json.dumps", "g": "builtins.len"}


STORED_ELSEWHERE = """
import enum, functools, json, math, pathlib, sys
from runmanager.records.settings.values import plain_settings

class Crop:
    def __init__(self, size, api_key="hunter2222"):
        self.size, self.api_key = size, api_key
    def apply(self, image):
        return image

class Slots:
    __slots__ = ("a", "__dict__")
    scale = 1
    def __init__(self, a):
        self.a = a

class Colour(enum.Enum):
    RED = 1

def scaled(factor):
    return lambda x, power=2: x * factor if x in {"one", "two", "three"} else x ** power

def with_class_attribute(scale):
    Slots.scale = scale
    return plain(Slots(1))

def plain(value):
    return plain_settings({"f": value})["f"]

values = [scaled(2), scaled(3), lambda x: x, lambda x: -x, Crop(3), Crop(4), Crop(3).apply, Crop(4).apply]
values += [functools.partial(scaled, 2), functools.partial(scaled, factor=2), functools.partial(Crop(3).apply, 1)]
values += [lambda *x: x, lambda *, x: x, Slots(1), Slots(2), ", ".join, "-".join, [lambda x: x, lambda x: -x]]
stored = [plain(value) for value in values]
plain_values = 1, True, 1.5, (1, 2), [1, 2], {"a": [1]}, {2, 1}, Colour.RED, pathlib.Path("a"), json, math
objects = Crop(1), Slots(1), scaled(2), scaled(4), Crop(1).apply, functools.partial(scaled, 3)
for SCALE in (*plain_values, *objects):
    stored.append(plain(lambda x: x * SCALE))
    stored.append(plain(lambda x: [SCALE for _ in x]))
for math.ratio in (1, 2):
    stored.append(plain(lambda x: math.sqrt(x) * math.ratio))
stored += [with_class_attribute(2), with_class_attribute(3)]
print(json.dumps(stored))
"""


def test_objects_without_a_text_of_their_own_are_equal_in_every_process_and_differ_where_they_do() -> None:
    first, second = (
        json.loads(subprocess.run([sys.executable, "-c", STORED_ELSEWHERE], capture_output=True, check=True).stdout)
        for _ in range(2)
    )
    assert first == second
    assert len({json.dumps(each) for each in first}) == len(first) == 56
    assert first[0].startswith("__main__.scaled.<locals>.<lambda> with code of sha256 ")
    crop = {"class": "__main__.Crop", "size": 3, "api_key": "***"}
    assert first[4] == crop
    assert first[6] == {"function": "__main__.Crop.apply", "args": [crop]}
    assert first[8] == {"function": "__main__.scaled", "args": [2], "keywords": {}}
    assert first[13] == {"class": "__main__.Slots", "scale": 1, "a": 1}
    assert first[15] == {"function": "str.join", "args": [", "]}


def local_object(scale: float) -> object:
    class Model:
        def forward(self, x: float) -> float:
            return x * scale

    return Model()


def returning(value: object) -> Callable[[], object]:
    return lambda: value


@pytest.mark.parametrize(
    "make",
    [
        local_object,
        lambda scale: type(local_object(scale)),
        lambda scale: local_object(scale).forward,  # type: ignore[attr-defined]
        lambda scale: lambda: UNDEFINED,  # type: ignore[name-defined] # noqa: F821
        lambda scale: object(),
        lambda scale: returning(object()),
        lambda scale: np.random.RandomState(int(scale)).normal,
    ],
)
def test_objects_that_may_differ_unseen_are_never_equal(make: Callable[[float], object]) -> None:
    """The next object may get the address of one that is gone."""
    one, other = (plain_settings({"x": make(1.0)})["x"] for _ in range(2))
    assert one != other


def test_secrets_of_partials_and_in_the_texts_of_objects_are_masked() -> None:
    class Client:
        def __repr__(self) -> str:
            return "Client(host='here', api_key='sk-live-12345678')"

    plain = plain_settings({"c": functools.partial(Namespace, api_key="sk-live-12345678", size=1), "d": Client()})
    assert plain["c"] == {
        "function": "<class 'argparse.Namespace'>",
        "args": [],
        "keywords": {"api_key": "***", "size": 1},
    }
    assert plain["d"] == "Client(host='here', api_key=***)"


def test_text_that_cannot_be_stored_and_values_that_contain_themselves_are_refused() -> None:
    for settings in ({"\udcff": 1}, {"name": "\udcff"}, {"a": {"b\udcff": 1}}, {"path": [Path("x\udcff")]}):
        with pytest.raises(UsageError, match=r"must be text that UTF-8 can encode, got '.*\\udcff'"):
            plain_settings(settings)
    cycle: dict[str, object] = {}
    cycle["inner"] = [cycle]
    with pytest.raises(UsageError, match="Setting 'config' must not contain itself, got a dict that does"):
        plain_settings({"config": cycle})


def test_values_that_are_nested_too_deeply_or_cannot_be_read_are_refused() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise ValueError("no\ntext")

    def nested(levels: int) -> object:
        return {"a": nested(levels - 1)} if levels else 1

    assert plain_settings({"config": nested(100)})["config"] == nested(100)
    for levels in (101, 500):
        with pytest.raises(
            UsageError, match="'config' must be nested in at most 100 levels, got a dict that is nested"
        ):
            plain_settings({"config": nested(levels)})
    with pytest.raises(UsageError, match="must be one that can be read, got a Broken that raises ValueError: no text"):
        plain_settings({"x": Broken()})


def test_settings_may_be_a_mapping_named_tuple_or_dataclass_or_none() -> None:
    @dataclasses.dataclass
    class Options:
        lr: float

    assert plain_settings(None) == {}
    expected = {"lr": 0.1}
    for given_settings in (
        {"lr": 0.1},
        namedtuple("Run", ["lr"])(0.1),
        Options(0.1),
        Namespace(lr=0.1),
        *expand_grid(lr=[0.1]),
    ):
        assert plain_settings(given_settings) == expected
    for wrong in (Options, 3, [("lr", 0.1)]):
        with pytest.raises(
            UsageError, match=r"must be a mapping, a named tuple, a dataclass or an argparse\.Namespace"
        ):
            plain_settings(wrong)
    with pytest.raises(UsageError, match="must be a string, got 3"):
        plain_settings({"model": {3: 1}})


def test_values_become_plain() -> None:
    plain = plain_settings({"a": Path("x/y"), "b": (1, 2), "c": {"d": {3}}, "e": True})
    assert plain == {"a": "x/y", "b": [1, 2], "c": {"d": [3]}, "e": True}
    assert plain["e"] is True


def test_numpy_numbers_become_python_numbers() -> None:
    """Users write `expand_grid(lr=np.logspace(…))`."""
    plain = plain_settings(
        {"lr": np.float64(0.1), "size": np.int64(3), "flag": np.bool_(True), "half": np.float32(0.5)}
    )
    assert plain == {"lr": 0.1, "size": 3, "flag": True, "half": 0.5}
    assert [type(value) for value in plain.values()] == [float, int, bool, float]


def test_number_that_json_cannot_express_becomes_text() -> None:
    assert plain_settings({"clip": math.inf, "x": math.nan}) == {"clip": "inf", "x": "nan"}
    numbers = {"large": 10**307, "larger": 10**400, "largest": 16**5000}
    assert plain_settings(numbers) == {"large": 10**307, "larger": hex(10**400), "largest": hex(16**5000)}


def test_arrays_and_sets_keep_every_element_in_one_order() -> None:
    near = (plain_settings({"weights": np.array([value, 1.0])}) for value in (0.1234567891, 0.1234567892))
    assert [each["weights"] for each in near] == [[0.1234567891, 1.0], [0.1234567892, 1.0]]
    assert plain_settings({"steps": np.arange(2000)})["steps"] == list(range(2000))
    assert plain_settings({"layers": {"pool", "conv", "norm"}}) == {"layers": ["conv", "norm", "pool"]}
    large = np.zeros((200, 100))
    texts = [plain_settings({"x": large + (np.arange(100) == each)})["x"] for each in (3, 4)]
    assert texts[0] != texts[1] and all(text.startswith("200x100 elements with sha256 ") for text in texts)


def test_secrets_within_nested_objects_are_masked_as_are_bytes() -> None:
    @dataclasses.dataclass
    class Database:
        host: str
        password: str

    database = Database("here", "hunter2222")
    for nested in (database, Namespace(**vars(database)), [database]):
        plain = plain_settings({"db": nested})["db"]
        assert (plain[0] if isinstance(nested, list) else plain) == {"host": "here", "password": "***"}
    assert plain_settings({"api_key": b"abcdefgh"}) == {"api_key": "***"}


def test_enums_and_numpy_strings_are_plain_values() -> None:
    class Name(enum.StrEnum):
        ADAM = "adam"

    class Level(enum.IntEnum):
        HIGH = 3

    plain = plain_settings({"name": Name.ADAM, "level": Level.HIGH, "text": np.str_("sgd")})
    assert plain == {"name": "adam", "level": 3, "text": "sgd"}
    assert [type(value) for value in plain.values()] == [str, int, str]
