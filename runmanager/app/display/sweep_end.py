"""How the end of a sweep is announced: a message to the user's service, else the terminal's bell and title."""

import logging
import socket
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.standard_streams import print_line
from runmanager.records.run.run_record import RunRecord
from runmanager.text import printable_line
from runmanager.validation import fault

__all__ = ["announce_end", "notification_faults", "ring"]


def notification_faults(url: str | None, *, option: str, is_detached: bool) -> list[str]:
    """Messages on a `url` that no notification can be sent to. The URL may hold a secret, so none repeats it."""
    if url is None:
        return []
    if is_detached:
        return [fault(option, "be left out where the command does not wait for its cells", "it")]
    try:
        service = _service(url)
    except ImportError:
        way_out = "pip install 'torch-runmanager[notify]'"
        return [fault(option, "be left out without the package apprise, which is not installed", "it", way_out)]
    way_out = "https://appriseit.com/services lists them"
    return [] if service else [fault(option, "be a URL of a service that apprise knows", _scheme(url), way_out)]


def announce_end(url: str, sweep: SweepPaths, runs: Sequence[RunRecord | None], *, interrupted: bool) -> None:
    """Send how the sweep of the `runs` ended to `url`; None stands for one that did not begin.

    A failure is a warning on stderr: the sweep itself has ended.
    """
    title = _title(sweep, runs)
    folder = printable_line(str(sweep.root.absolute()))
    body = f"{folder} on {socket.gethostname()}" + ("; interrupted" if interrupted else "")
    try:
        is_sent = _service(url).notify(title=title, body=body)
    except Exception:  # of the service's own client
        is_sent = False
    if not is_sent:
        print_line(f"warning: the notification could not be sent to {_scheme(url)}.", sys.stderr)


def ring(console: Console, sweep: SweepPaths, runs: Sequence[RunRecord | None]) -> None:
    """Ring the terminal's bell, and show how the sweep ended as its title."""
    if console.is_terminal and not console.is_dumb_terminal and sys.stdout.isatty():
        console.bell()
        console.set_window_title(_title(sweep, runs))


def _title(sweep: SweepPaths, runs: Sequence[RunRecord | None]) -> str:
    """The sweep's name and how many of its cells ended how: `first: 11 finished, 1 failed`."""
    counts = Counter("not run" if run is None else str(run.status) for run in runs)
    return f"{printable_line(sweep.name)}: {', '.join(f'{count:,} {status}' for status, count in counts.items())}"


def _service(url: str) -> Any:
    """Return what sends to `url`; false for one that apprise does not know. Raises `ImportError` without apprise."""
    import apprise  # an extra, and slow to import

    logging.getLogger("apprise").addHandler(logging.NullHandler())  # its lines would show the URL
    service = apprise.Apprise()
    return service if service.add(url) else None


def _scheme(url: str) -> str:
    scheme, separator, _ = url.partition("://")
    return f"{scheme}://…" if separator else "one without a scheme"
