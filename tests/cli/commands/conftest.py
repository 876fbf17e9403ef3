"""The commands' tests do not ask Git for the commit."""

import pytest


@pytest.fixture(autouse=True)
def commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNMANAGER_COMMIT", "abc")
