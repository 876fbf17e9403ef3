"""The command that shows a sweep's runs in TensorBoard."""

import errno
import importlib.util
import os
import socket
import sys
from typing import Annotated

import typer

from runmanager.cli.arguments import SweepName
from runmanager.errors import UsageError
from runmanager.records.location import find_sweep

__all__ = ["tensorboard"]

_FIRST_PORT = 6006
_NUM_PORTS_TRIED = 100


def tensorboard(
    sweep: SweepName,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Default: the first free one from 6006; 0: any free one.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on; localhost is this machine only.")] = "localhost",
) -> None:
    """Show a sweep's runs in TensorBoard, until Ctrl-C."""
    paths = find_sweep(sweep)
    if importlib.util.find_spec("tensorboard") is None:
        raise UsageError("TensorBoard must be installed, got nothing of that name; pip install tensorboard.")
    chosen = free_port(host, port)
    # Before exec, which throws away what is not written yet.
    print(f"TensorBoard of {paths.root}: http://{host}:{chosen}/ (Ctrl-C ends it)", flush=True)
    # The sweep's runs/, not one run: TensorBoard's HParams then takes the union of all their settings.
    options = ["--logdir", str(paths.runs), "--host", host, "--port", str(chosen)]
    os.execv(sys.executable, [sys.executable, "-m", "tensorboard.main", *options])


def free_port(host: str, port: int | None) -> int:
    """A port of `host` that is free now: `port` itself, any for 0, the first from 6006 for None.

    Raises `UsageError` if `port` is taken, or `host` is no address of this machine.
    """
    candidates = range(_FIRST_PORT, _FIRST_PORT + _NUM_PORTS_TRIED) if port is None else [port]
    for candidate in candidates:
        try:
            with socket.socket() as server:
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                server.bind((host, candidate))
                return int(server.getsockname()[1])
        except OSError as error:
            # A name that nothing resolves, or another machine's address, is no matter of ports.
            if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
                raise UsageError(f"`--host` must be an address of this machine, got '{host}'; use localhost.") from None
            refusal = error.strerror
    wanted = f"a port from {_FIRST_PORT}" if port is None else f"port {port}"
    raise UsageError(f"`--port` must be free on {host}, but {wanted} is not ({refusal}); use --port 0.")
