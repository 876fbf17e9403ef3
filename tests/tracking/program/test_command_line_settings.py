"""Settings are read from a command line as its program would read them, as far as that can be known."""

import sys

import pytest

from runmanager.tracking.program.start_run import command_line_settings, parse_settings


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ("", {}),
        ("--lr=0.1 --batch-size 32 model=resnet18", {"lr": 0.1, "batch-size": 32, "model": "resnet18"}),
        (
            "--amp --nesterov=false --warmup=null --seed=1e3",
            {"amp": True, "nesterov": False, "warmup": None, "seed": 1e3},
        ),
        ("--offset -1 -v 3 -q", {"offset": -1, "v": 3, "q": True}),
        ("--betas=[0.9,0.99] --model={depth:2}", {"betas": [0.9, 0.99], "model": {"depth": 2}}),
        ("+model.depth=2 ++model.width=3", {"model.depth": 2, "model.width": 3}),
        ("--sizes=1,2 --url=http://a/b?c=d --env=${oc.env:HOME} --bad=[1", None),
        ("fit data.csv --tag=a --tag=b -- --rest", {"arguments": ["fit", "data.csv", "--rest"], "tag": ["a", "b"]}),
    ],
)
def test_settings_of_a_command_line(line: str, settings: dict[str, object] | None) -> None:
    found = parse_settings(line.split())
    if settings is None:  # what is not a single value of Hydra's syntax is text
        assert found == {name.lstrip("-"): text for name, _, text in (word.partition("=") for word in line.split())}
    else:
        assert found == settings
        assert [type(found[name]) for name in settings] == [type(value) for value in settings.values()]


def test_a_notebook_has_no_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    monkeypatch.setattr(sys, "argv", ["program", "--lr=0.1"])
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "program", raising=False)
    assert command_line_settings() == {"lr": 0.1}
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    assert command_line_settings() == {}
