"""The commands' tests do not call Git."""

import pytest


@pytest.fixture(autouse=True)
def commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNMANAGER_COMMIT", "abc")
