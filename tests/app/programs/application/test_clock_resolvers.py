"""Resolvers that read the clock are known by their code: their values may be the same all day."""

import datetime
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from omegaconf import OmegaConf

from runmanager.app.programs.application.identity import reads_clock
from runmanager.launching.hydra_internals import register_resolver, resolvers


def of_helper() -> str:
    return f"{helper():%Y}"


def helper() -> datetime.date:
    return datetime.date.today()


def with_import() -> str:
    import time

    return time.strftime("%Y-%m-%d")


def parsed(text: str) -> str:
    return datetime.datetime.strptime(text, "%Y").strftime("%Y")


def later(text: str) -> datetime.timedelta:
    return datetime.timedelta(days=int(text)) * time.struct_time.n_fields


@pytest.fixture
def kept() -> Iterator[Callable[[Any], Any]]:
    """A function that registers a resolver and returns it as OmegaConf keeps it."""

    def keep(resolver: Any) -> Any:
        register_resolver("test_clock", resolver)
        return resolvers()["test_clock"]

    yield keep
    OmegaConf.clear_resolver("test_clock")


@pytest.mark.filterwarnings("ignore:Resolver .* cannot be inspected:UserWarning")  # a builtin has no signature
@pytest.mark.parametrize(
    ("resolver", "expected"),
    [
        (lambda: datetime.datetime.now().strftime("%Y"), True),
        (lambda: f"{time.time() // 86400}", True),
        (lambda: [datetime.date.today() for _ in range(1)], True),
        (lambda: __import__("datetime").date.today(), True),
        (of_helper, True),
        (with_import, True),
        (datetime.date.today, True),
        (time.time, True),
        (parsed, False),
        (later, False),
        (lambda text: text.upper(), False),
        (partial(int, base=2), False),
        (len, False),
    ],
)
def test_only_what_reads_the_clock_is_found(
    kept: Callable[[Any], Any], resolver: Callable[..., Any], expected: bool
) -> None:
    assert reads_clock(kept(resolver)) is expected
