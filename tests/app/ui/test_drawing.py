"""The thread that draws pages ends at once, whatever it is at."""

import threading

from runmanager.app.ui.live_pages import Drawer, DrawnPage, LivePage


class Lingering:
    """Spends its time in a finalizer, which no exception can leave."""

    def __del__(self) -> None:
        for _ in range(500):
            pass


def test_drawing_is_given_up_even_in_a_finalizer() -> None:
    is_drawing, gives_up = threading.Event(), threading.Event()

    def draw(_: bool) -> tuple[int, LivePage]:
        is_drawing.set()
        while not gives_up.is_set():
            Lingering()
        raise AssertionError("drawn to the end")

    drawer = Drawer()
    drawer.request(DrawnPage(draw, has_figures=False), 1, is_last=True)
    assert is_drawing.wait(60)
    ending = threading.Thread(target=drawer.end)
    ending.start()
    ending.join(60)
    has_ended = not ending.is_alive()
    gives_up.set()
    ending.join(60)
    assert has_ended
    assert not any(each.name == "drawer" for each in threading.enumerate())
