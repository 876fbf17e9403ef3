"""Pages for a browser: opened here, or brought over ssh to the machine where the browser is."""

import os
from pathlib import Path

from runmanager.records.host.addresses import bracketed, is_every_address
from runmanager.text import shell_join

__all__ = ["forwarding_command", "forwarding_line", "open_page"]

_CONNECTION = "SSH_CONNECTION"
"""Environment variable of a session over ssh: client address and port, server address and port."""

_SSH_PORT = "22"


def _connection() -> tuple[str, str] | None:
    """Return the address and port at which ssh reached this machine; None outside such a session."""
    words = os.environ.get(_CONNECTION, "").split()
    return (words[2], words[3]) if len(words) == 4 else None


def forwarding_command(port: int, host: str = "localhost") -> str | None:
    """Return the command that brings a `port` of this machine to one's own; None outside a session over ssh."""
    if (reached := _connection()) is None:
        return None
    address, ssh_port = reached
    through = "localhost" if is_every_address(host) else bracketed(host)
    options = [] if ssh_port == _SSH_PORT else ["-p", ssh_port]
    return shell_join(["ssh", *options, "-N", "-L", f"{port}:{through}:{port}", f"{_user()}@{address}"])


def forwarding_line(port: int, host: str = "localhost") -> str | None:
    """Return what to run on one's own machine to see a page at `port` of this one; None outside a session over ssh."""
    command = forwarding_command(port, host)
    return None if command is None else f"On your own machine: {command} and then http://localhost:{port}/"


def _user() -> str:
    import getpass  # late: every command imports this module

    return getpass.getuser()


def open_page(page: Path) -> str:
    """Open a file in the browser; return what to say, which over ssh is how to copy it."""
    if (reached := _connection()) is None:
        import webbrowser

        is_open = webbrowser.open(page.absolute().as_uri())
        return f"{page} is open in the browser." if is_open else f"No browser was found to open {page} in."
    address, ssh_port = reached
    options = [] if ssh_port == _SSH_PORT else ["-P", ssh_port]
    command = shell_join(["scp", *options, f"{_user()}@{bracketed(address)}:{page.absolute()}", "."])
    return f"On your own machine: {command} copies the page, which is one file."
