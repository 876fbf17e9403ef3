"""What a command that serves pages needs: a free port, a socket that listens, its address, and how signals end it."""

import errno
import os
import signal
import socket
import sys

from runmanager.errors import UsageError
from runmanager.records.host.addresses import bracketed

__all__ = ["base_address", "exit_on_signals", "free_port", "listen"]

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
