"""What a thread keeps back, and that nobody else loses anything by it."""

import contextlib
import io
import os
import sys
import threading
import warnings

import pytest

from runmanager.tracking.introspect.quiet_thread import quiet_thread


def in_another_thread(do: object) -> None:
    thread = threading.Thread(target=do)  # type: ignore[arg-type]
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


def test_only_this_thread_is_quiet_and_only_meanwhile(capsys: pytest.CaptureFixture[str]) -> None:
    def others() -> None:
        print("of another thread")
        with pytest.warns(UserWarning, match="of another"):
            warnings.warn("of another", stacklevel=1)

    before = sys.stdout
    with quiet_thread():
        print("kept back")
        sys.stdout.writelines(["kept", " back"])
        warnings.warn("kept back", stacklevel=1)  # an error in these tests, were it seen
        in_another_thread(others)
    print("afterwards")
    with pytest.raises(UserWarning, match="afterwards"):
        warnings.warn("afterwards", stacklevel=1)
    assert sys.stdout is before
    assert capsys.readouterr().out == "of another thread\nafterwards\n"


def test_what_overlaps_puts_back_what_is_quiet_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    """A redirection and a change of filters by another thread, begun meanwhile and ended afterwards."""
    filters, before = warnings.filters, sys.stdout
    overlapping = contextlib.ExitStack()
    try:
        with quiet_thread():
            overlapping.enter_context(contextlib.redirect_stdout(io.StringIO()))
            overlapping.enter_context(warnings.catch_warnings())
        with pytest.raises(UserWarning, match="within"):
            warnings.warn("within", stacklevel=1)
        overlapping.close()
        print("afterwards")
        assert capsys.readouterr().out == "afterwards\n" and warnings.filters is filters
    finally:
        sys.stdout = before


def test_a_fork_of_another_thread_can_be_quiet_too() -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with quiet_thread():
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
        child = os.fork()
    if child == 0:
        import signal

        signal.alarm(60)  # a fork that waits for the lock is killed
        with quiet_thread():
            os._exit(7)
    done.set()
    thread.join(60)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
