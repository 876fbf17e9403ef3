"""What a command that serves pages needs: a port, an address from elsewhere, temporary folders, and its end."""

import contextlib
import errno
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runmanager.errors import UsageError
from runmanager.records.host.addresses import bracketed, is_every_address
from runmanager.records.host.process import ProcessIdentity
from runmanager.text import shell_join

_FIRST_PORT = 6006
_NUM_PORTS_TRIED = 100
_QUEUE = 128  # connections that wait to be accepted


def free_port(host: str, port: int | None) -> int:
    """Return a free port of `host`: `port` itself, any for 0, the first from 6006 for None.

    Raises `UsageError` if `port` is taken or `host` is not an address of this machine.
    """
    candidates = range(_FIRST_PORT, _FIRST_PORT + _NUM_PORTS_TRIED) if port is None else [port]
    for candidate in candidates:
        try:
            return _bindable(host, candidate)
        except OSError as error:
            # An unresolvable name or a foreign address: another port would not help.
            if isinstance(error, socket.gaierror) or error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise UsageError(f"`--host` must be an address of this machine, got '{host}'; use localhost.") from None
            refusal = error.strerror
    wanted = f"a port from {_FIRST_PORT}" if port is None else f"port {port}"
    raise UsageError(f"`--port` must be free on {host}, but {wanted} is not ({refusal}); use --port 0.")


def _bindable(host: str, port: int) -> int:
    """Return the port, or any free one for 0, if a server can bind it. Raises `OSError` if not."""
    with socket.socket(_family(host)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, port))
        bound = int(server.getsockname()[1])
    with socket.socket() as client:  # TensorBoard rejects a port that answers on localhost, for any host
        client.settimeout(1)
        if client.connect_ex(("localhost", bound)) == 0:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    return bound


def _family(host: str) -> socket.AddressFamily:
    """IPv6 only for literal addresses, as in TensorBoard's server, which resolves names in IPv4."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def listen(host: str, port: int | None) -> socket.socket:
    """Return a socket that listens on a free port (see `free_port`), which nothing else can take any more."""
    while True:  # `free_port` raises when no port is left
        address = (host, free_port(host, port))
        try:
            return socket.create_server(address, family=_family(host), backlog=_QUEUE)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise


def base_address(host: str, port: int) -> str:
    """Return the address of a server's first page."""
    return f"http://{bracketed(host)}:{port}/"


def exit_on_signals() -> None:
    """End the command at SIGTERM and SIGHUP with status 128 + number, through its clean-up; nohup keeps its effect."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda received, _: sys.exit(128 + received))


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


_IN_MEMORY = "/dev/shm"  # noqa: S108  # folders there are the user's alone, as any that `tempfile` makes
_LEAST_FREE_BYTES = 1 << 30  # runs need shared memory too, of which containers have little
_GIVEN = ("TMPDIR", "TEMP", "TMP")  # the user's choice of a folder for temporary files


@contextmanager
def temporary_folder(kind: str) -> Iterator[Path]:
    """Yield an empty folder for a command of this kind; first remove those of such commands that were killed.

    It is in memory if there is room, where a thousand links take a fraction of the time that a disk needs.
    """
    import fcntl  # imported late: Windows lacks it, and gets a clear error elsewhere

    prefix, parent = f"runmanager-{kind}-", _parent()
    for each in {parent, tempfile.gettempdir()}:
        with contextlib.suppress(OSError):
            _remove_abandoned(prefix, each)
    process = ProcessIdentity.current()
    with tempfile.TemporaryDirectory(prefix=f"{prefix}{process.pid}-{process.start_ticks}-", dir=parent) as folder:
        handle = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield Path(folder)
        finally:
            os.close(handle)


def _parent() -> str:
    """Return where the folder is made."""
    try:
        is_roomy = os.access(_IN_MEMORY, os.W_OK | os.X_OK) and shutil.disk_usage(_IN_MEMORY).free >= _LEAST_FREE_BYTES
    except OSError:
        is_roomy = False
    return _IN_MEMORY if is_roomy and not any(map(os.environ.get, _GIVEN)) else tempfile.gettempdir()


def _remove_abandoned(prefix: str, parent: str) -> None:
    """Remove this user's folders whose process is gone, and which no process holds: it may be in another container."""
    pattern = re.compile(rf"{re.escape(prefix)}(\d{{1,9}})-(\d{{1,18}})-\w+")
    with os.scandir(parent) as entries:
        for entry in entries:
            found = pattern.fullmatch(entry.name)
            if found is None or not entry.is_dir(follow_symlinks=False) or entry.stat().st_uid != os.getuid():
                continue
            owner = ProcessIdentity.of(int(found[1]))
            if (owner is None or owner.start_ticks != int(found[2])) and not _is_held(entry.path):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_held(folder: str) -> bool:
    import fcntl

    try:
        handle = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
