"""What the commands that serve pages share: free ports, addresses, and how signals end them."""

import errno
import getpass
import os
import shlex
import signal
import socket
import sys
from collections.abc import Mapping

from runmanager.errors import UsageError

__all__ = ["base_address", "exit_on_signals", "forwarding_command", "free_port", "listen"]

_FIRST_PORT = 6006
_NUM_PORTS_TRIED = 100
_QUEUE = 128  # connections that wait to be accepted
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def free_port(host: str, port: int | None, *, first: int = _FIRST_PORT) -> int:
    """Return a free port of `host`: `port` itself, any for 0, the first from `first` on for None.

    Raises `UsageError` if `port` is taken or `host` is not an address of this machine.
    """
    candidates = range(first, first + _NUM_PORTS_TRIED) if port is None else [port]
    for candidate in candidates:
        try:
            return _bindable(host, candidate)
        except OSError as error:
            # An unresolvable name or a foreign address: another port would not help.
            if isinstance(error, socket.gaierror) or error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise UsageError(f"`--host` must be an address of this machine, got '{host}'; use localhost.") from None
            refusal = error.strerror
    wanted = f"a port from {first}" if port is None else f"port {port}"
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
    # IPv6 only for literal addresses, as in TensorBoard's server, which resolves names in IPv4.
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def listen(host: str, port: int | None, *, first: int) -> socket.socket:
    """Return a socket that listens on a free port (see `free_port`), which nothing else can take any more."""
    while True:  # `free_port` raises when no port is left
        chosen = free_port(host, port, first=first)
        try:
            return socket.create_server((host, chosen), family=_family(host), backlog=_QUEUE)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise


def base_address(host: str, port: int) -> str:
    """Return the address of a server's first page."""
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def forwarding_command(host: str, port: int, environment: Mapping[str, str]) -> str | None:
    """Return the command that makes a server of this machine reachable at the other end of ssh; None without ssh."""
    if not environment.get("SSH_CONNECTION") or host not in _LOOPBACK:
        return None
    return shlex.join(["ssh", "-N", "-L", f"{port}:{host}:{port}", f"{getpass.getuser()}@{socket.gethostname()}"])


def exit_on_signals() -> None:
    """End the command at SIGTERM and SIGHUP with status 128 + number, through its clean-up; nohup keeps its effect."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda received, _: sys.exit(128 + received))
