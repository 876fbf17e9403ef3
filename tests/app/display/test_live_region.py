"""Tests of what the package relies on in rich's private API, read against rich 13.8 to 15.0."""

import importlib.metadata
import io
import threading

from rich.console import Console

from runmanager.app.display.output import PausableLive

READ_AGAINST = "rich 13.8 to 15.0"


def test_a_paused_live_is_not_redrawn_by_another_thread() -> None:
    drawn: list[int] = []

    def draw() -> str:
        drawn.append(threading.get_ident())
        return "text"

    why = f"`Live._lock` was read in {READ_AGAINST}; this is rich {importlib.metadata.version('rich')}"
    live = PausableLive(
        console=Console(file=io.StringIO(), force_terminal=True), auto_refresh=False, get_renderable=draw
    )
    other = threading.Thread(target=live.refresh)
    with live.paused():
        drawn.clear()
        other.start()
        other.join(0.1)
        assert other.is_alive() and not drawn, why
        live.refresh()
        assert set(drawn) == {threading.get_ident()}, why
    other.join(60)
    assert other.ident in drawn, why
