"""Conditions of `--where`: evaluation on a row, and invalid conditions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runmanager.errors import UsageError
from runmanager.results.table_model.columns import Row
from runmanager.results.tables.where_condition import parse_condition

ROW: dict[str, Any] = {
    "lr": 0.01,
    "batch_size": 1000,
    "device": "cuda",
    "model.name": "cnn",
    "hidden": [120, 60],
    "contended": False,
    "val_accuracy": None,
    "run": "lr=0.01,device=cuda-1234",
    "val/first/loss": 0.3,
    "val loss": 0.2,
}
COLUMNS = {name: name for name in ROW} | {"model": "model.name"}


def holds(text: str, row: dict[str, Any] = ROW) -> bool:
    return parse_condition(text).over(COLUMNS, known=list(COLUMNS))(Row(row))


@pytest.mark.parametrize(
    "text",
    [
        "device==cuda",
        "device == 'cuda' and lr < 0.1",
        "'cuda' == device",
        "device==cpu or batch_size>=1000",
        "not device==cpu",
        "not (device==cpu or lr>1)",
        "0.001 < lr <= 0.01 < batch_size",
        "device in [cpu, cuda]",
        "device not in (cpu, mps)",
        "model.name==cnn",
        "model==cnn",
        "hidden==[120, 60]",
        "60 in hidden",
        "'device=cuda' in run",
        "not contended",
        "lr",
        "contended==false",
        "lr > -1",
        "lr != batch_size",
        "val/first/loss < 0.5",
        "0.2 < val/first/loss and lr > 0",
        "`val loss` < 0.5 and not `lr` == 3",
        "run != 'a `val loss`' and `val/first/loss` > `val loss`",
    ],
)
def test_true_conditions_hold(text: str) -> None:
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    [
        "device==cpu",
        "device==CUDA",
        "lr < 0.01",
        "device==cuda and lr > 1",
        "device in [cpu]",
        "contended",
        "device < 3",
        "hidden in [1, 2]",
    ],
)
def test_false_conditions_do_not_hold(text: str) -> None:
    assert not holds(text)


@pytest.mark.parametrize("text", ["val_accuracy > 0", "val_accuracy <= 0", "val_accuracy != 0", "val_accuracy == lr"])
def test_comparison_with_a_missing_value_is_false(text: str) -> None:
    assert not holds(text)
    assert holds(f"not {text}")


def test_tags_of_event_files_are_names() -> None:
    condition = parse_condition("val/loss < 0.5 and time.s/data/a > 1")
    assert condition.words == ("val/loss", "time.s/data/a")
    row = {"val/loss": 0.4, "time.s/data/a": 2}
    assert condition.over({name: name for name in row})(Row(row))


@pytest.mark.parametrize("text", ["val_accuracy == null", "null == val_accuracy", "val_accuracy == None", "lr != null"])
def test_null_equals_missing_values(text: str) -> None:
    assert holds(text)
    assert not holds(f"not {text}")


@pytest.mark.parametrize(
    ("text", "true"),
    [
        ("val_accuracy in [null, 1]", True),
        ("val_accuracy in [1]", False),
        ("val_accuracy not in [null]", False),
        ("lr in [null, 0.01]", True),
        ("lr not in [null, 1]", True),
        ("lr == null", False),
        ("val_accuracy != null", False),
        ("device == 'null'", False),
    ],
)
def test_null_equals_missing_values_only(text: str, true: bool) -> None:
    assert holds(text) is true


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("devise==cuda", r"got 'devise'; did you mean 'device'\?"),
        ("cuda==devise", r"got 'devise'; did you mean 'device'\?"),
        ("lr < bathc_size", r"got 'bathc_size'; did you mean 'batch_size'\?"),
        ("contented", r"got 'contented'; did you mean 'contended'\?"),
        ("zzz==1", r"got 'zzz'; `runmanager table SWEEP --format csv` has every column"),
        ("lr=0.1", "equality is written =="),
        ("lr<1 OR device==cpu", "conditions are joined by and, or, not"),
        ("lr<1 && device==cpu", "conditions are joined by and, or, not"),
        ("lr<1 || device==cpu", "conditions are joined by and, or, not"),
        ("device==cuda:1", "a value like 'cuda:1'"),
        ("lr < 0.1 and", "it is incomplete"),
        ("", "it is incomplete"),
        ("lr in 0.1", "needs a list"),
        ("lr is device", "`is` is not supported"),
        ("lr in null", "needs a list"),
        ("lr < null", "got 'null'"),
        ("null", "got 'null'"),
        ("lr/2 > 1", "'lr / 2' is neither"),
        ("val/frist/loss > 1", r"got 'val/frist/loss'; did you mean 'val/first/loss'\?"),
        ("lr + 1 > 2", r"'lr \+ 1' is neither"),
        ("1 < 2", "must compare a column"),
        ("0.1", "must compare a column"),
        ("0x" + "f" * 5000, "got 'a number with thousands of digits'"),
        ("lr == 2**9999999999", "is neither"),
        ("__import__('os').system('x') == 0", "is neither"),
        ("lr.__class__ == 1", "got 'lr.__class__'"),
        ("[lr for lr in run]", "is neither"),
        ("(" * 2000, "it is incomplete"),
        ("not " * 500 + "lr", "of its parts are nested"),
        ("lr" + ".a" * 5000 + " == 1", "of its parts are nested"),
        ("lr == " + "1+" * 5000 + "1", "of its parts are nested"),
        ("lr == -True", "'-True' is neither"),
        ("(lr < 1) == contended", "'lr < 1' is neither"),
        ("[lr < 1] == hidden", "'lr < 1' is neither"),
        ("lr == (not contended)", "'not contended' is neither"),
        ("lr/2 > 1", "'lr / 2' is neither"),
        ("val loss < 1", "a name like `val loss` lacks backticks"),
        ("`val los` < 1", r"got 'val los'; did you mean 'val loss'\?"),
        ("`val loss < 1", "it is incomplete"),
        ("val/loss < 1", "got 'val/loss'"),
    ],
)
def test_invalid_conditions_are_rejected_in_one_line(text: str, cause: str) -> None:
    with pytest.raises(UsageError, match=cause) as rejected:
        holds(text)
    assert "\n" not in str(rejected.value)
    assert str(rejected.value).startswith("`--where` must")


VALUES = st.integers(-3, 3)
ATOMS = st.builds(
    lambda name, operator, value: f"{name}{operator}{value}",
    st.sampled_from(["a", "b"]),
    st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
    VALUES,
)
CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: (
        st.builds(lambda x, operator, y: f"({x} {operator} {y})", inner, st.sampled_from(["and", "or"]), inner)
        | inner.map(lambda x: f"not {x}")
    ),
    max_leaves=6,
)


@given(CONDITIONS, VALUES, VALUES)
def test_conditions_evaluate_as_in_python(text: str, a: int, b: int) -> None:
    condition = parse_condition(text).over({"a": "a", "b": "b"})
    assert condition({"a": a, "b": b}) == eval(text, {}, {"a": a, "b": b})
