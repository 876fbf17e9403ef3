"""`runmanager ui`: all sweeps of a folder and their reports in the browser, live and read-only."""

import contextlib
import html
import importlib.util
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from runmanager.cli.printing import print_text, print_warning
from runmanager.cli.serving.local_server import (
    base_address,
    exit_on_signals,
    forwarding_command,
    listen,
    temporary_folder,
)
from runmanager.errors import UsageError
from runmanager.records.files.file_errors import require_current_folder
from runmanager.records.host.addresses import is_every_address, is_loopback
from runmanager.records.sweep.lookup import OUTPUT_ROOT

_SWITCH_SECONDS = 0.0005  # a request waits that long for the thread that draws, at each file that it looks at


def ui(
    root: Annotated[
        Path, typer.Argument(metavar="ROOT", help="A folder; the sweeps below it are shown.")
    ] = OUTPUT_ROOT,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Default: the first free port from 6006; 0: any free port.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; 127.0.0.1 is reachable from this machine only.")
    ] = "127.0.0.1",
    opens: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open",
            help="Open the browser. Default: from a terminal of a desktop, not over ssh.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show all sweeps, their reports while they run, and two sweeps compared, in the browser until Ctrl-C.

    The pages are read-only and need the token in the address that is printed first.
    """
    if importlib.util.find_spec("werkzeug") is None:
        raise UsageError(
            "werkzeug, which comes with TensorBoard, must be installed, got no such package; pip install it."
        )
    if not root.is_dir():
        require_current_folder()
        if root != OUTPUT_ROOT:
            raise UsageError(f"ROOT must be a folder, got '{root}': {'a file' if root.exists() else 'nothing there'}.")
    exit_on_signals()
    with listen(host, port) as listening:
        _serve(root, listening, host=host, opens=_has_desktop() if opens is None else opens)


def _serve(root: Path, listening: socket.socket, *, host: str, opens: bool) -> None:
    from runmanager.app.ui.pages import Pages
    from runmanager.app.ui.sweep_board import SweepBoard
    from runmanager.app.ui.web_server import TOKEN_FIELD, Access, PageServer, WebApp

    sys.setswitchinterval(_SWITCH_SECONDS)
    port = int(listening.getsockname()[1])
    access = Access(host, port)
    board = SweepBoard(root)
    pages = Pages(board)
    server = PageServer(listening, WebApp(pages, access))
    named = socket.gethostname() if is_every_address(host) else host
    address = f"{base_address(named, port)}?{TOKEN_FIELD}={access.token}"
    print_text("".join(f"{line}\n" for line in (address, *_explanations(root, host, port))))
    if not is_loopback(host):
        print_warning("other machines reach these pages, unencrypted; only the token protects them.")
    # The first reading is the longest: it begins before the first page is asked for.
    threading.Thread(target=board.current, name="first reading", daemon=True).start()
    with _open_in_browser(address) if opens else contextlib.nullcontext():
        try:
            server.serve_forever()
        finally:
            pages.end()


@contextlib.contextmanager
def _open_in_browser(address: str) -> Iterator[None]:
    """Open a page that leads to `address` within the block; only this user can read it.

    The words of a command can be read by all users of a machine, so the browser's must not hold the token.
    """
    import webbrowser  # late: every command imports this module

    target = html.escape(address)
    with temporary_folder("ui") as folder:
        page = folder / "open.html"
        page.touch(0o600)
        page.write_text(
            '<!DOCTYPE html><meta charset="utf-8"><title>runmanager</title>'
            f'<meta http-equiv="refresh" content="0; url={target}"><a href="{target}">runmanager</a>\n'
        )
        threading.Thread(target=webbrowser.open, args=[page.as_uri()], name="browser", daemon=True).start()
        yield


def _explanations(root: Path, host: str, port: int) -> list[str]:
    lines = [f"Sweeps in {root}, live and read-only; Ctrl-C ends it."]
    if is_loopback(host) and (command := forwarding_command(port, host)):
        lines.append(f"Over ssh, first run this on your own machine: {command}")
    return lines


def _has_desktop() -> bool:
    """Whether a browser can be expected to open where this command was typed."""
    has_display = sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return has_display and sys.stdout.isatty() and not os.environ.get("SSH_CONNECTION")
