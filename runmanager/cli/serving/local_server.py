"""What a command that serves pages itself needs: a socket that listens, its address, and how signals end it."""

import errno
import ipaddress
import signal
import socket
import sys

from runmanager.cli.commands.tensorboard import free_port

__all__ = ["base_address", "exit_on_signals", "is_loopback", "listen"]

_QUEUE = 128  # connections that wait to be accepted


def listen(host: str, port: int | None) -> socket.socket:
    """Return a socket that listens on a free port (see `free_port`), which nothing else can take any more."""
    while True:  # `free_port` raises when no port is left
        address = (host, free_port(host, port))
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            return socket.create_server(address, family=family, backlog=_QUEUE)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise


def base_address(host: str, port: int) -> str:
    """Return the address of a server's first page."""
    return f"http://{_bracketed(host)}:{port}/"


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reachable from this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def exit_on_signals() -> None:
    """End the command at SIGTERM and SIGHUP with status 128 + number, through its clean-up; nohup keeps its effect."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda received, _: sys.exit(128 + received))
