"""The command that shows a sweep and its runs in TensorBoard."""

import contextlib
import errno
import importlib.util
import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runmanager.cli.arguments import SweepName
from runmanager.errors import RecordError, UsageError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.sweep.lookup import find_sweep
from runmanager.text import printable

if TYPE_CHECKING:
    from runmanager.tracking.tensorboard.logdir import SweepLogdir
    from runmanager.tracking.tensorboard.sweep_summary import SweepSummaryWriter

__all__ = ["tensorboard"]

_FIRST_PORT = 6006
_NUM_PORTS_TRIED = 100
_REFRESH_SECONDS = 2  # new runs are linked, and all files read on, as often


def tensorboard(
    sweep: SweepName,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Default: the first free one from 6006; 0: any free one.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on; localhost is this machine only.")] = "localhost",
) -> None:
    """Show a sweep's runs in TensorBoard, and how they compare, until Ctrl-C."""
    paths = find_sweep(sweep)
    if importlib.util.find_spec("tensorboard") is None:
        raise UsageError("TensorBoard must be installed, got nothing of that name; pip install tensorboard.")
    free_port(host, port)  # before all that takes a while
    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is not signal.SIG_IGN:  # as nohup asks
            signal.signal(ending, lambda number, _: sys.exit(128 + number))  # by way of the folder's removal
    with tempfile.TemporaryDirectory(prefix="runmanager-tensorboard-") as folder:
        _serve(paths, Path(folder), host=host, port=port)


def _serve(paths: SweepPaths, folder: Path, *, host: str, port: int | None) -> None:
    from runmanager.tracking.tensorboard.logdir import SweepLogdir
    from runmanager.tracking.tensorboard.sweep_summary import SweepSummaryWriter

    runs = SweepLogdir(paths, folder)
    runs.refresh()
    sweep = SweepSummaryWriter(paths, runs)
    sweep.declare()
    taken = _launch(runs.root, title=paths.name, host=host, port=port)
    print(f"TensorBoard of {paths.root}: {_address(host, taken)} (Ctrl-C ends it)", flush=True)
    faults: set[str] = set()
    while True:
        time.sleep(_REFRESH_SECONDS)
        _keep_up(runs, sweep, faults)


def _keep_up(runs: "SweepLogdir", sweep: "SweepSummaryWriter", faults: set[str]) -> None:
    """Serve what is new. Whatever goes wrong, the server stays: a fault that is not in `faults` is said and added."""
    try:
        runs.refresh()
        sweep.refresh()
    except (FileNotFoundError, NotADirectoryError, RecordError):
        pass  # what cannot be read or written now may be in a moment; what is shown stays
    except Exception as error:
        fault = f"What is new in the sweep could not be drawn ({type(error).__name__}: {error}); the rest is shown."
        if fault not in faults:
            faults.add(fault)
            print(printable(fault), file=sys.stderr, flush=True)


def _address(host: str, port: int) -> str:
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _launch(folder: Path, *, title: str, host: str, port: int | None) -> int:
    """Start the server, and say at which port; one that another has taken since it was found free is passed over."""
    from tensorboard import default, program  # late: it takes a second

    while True:  # ends at the latest when no port is free
        chosen = free_port(host, port)
        server = program.TensorBoard(plugins=default.get_plugins())
        server.configure(["tensorboard", *serving_options(folder, title=title, host=host, port=chosen)])
        with contextlib.suppress(program.TensorBoardPortInUseError):
            server.launch()
            return chosen


def serving_options(folder: Path, *, title: str, host: str, port: int) -> list[str]:
    """TensorBoard's own options for a folder of runs that grow, and may be many."""
    return [
        *("--logdir", str(folder), "--window_title", title),
        *("--host", host, "--port", str(port)),
        *("--reload_interval", str(_REFRESH_SECONDS)),
    ]


def free_port(host: str, port: int | None) -> int:
    """A port of `host` that is free now: `port` itself, any for 0, the first from 6006 for None.

    Raises `UsageError` if `port` is taken, or `host` is no address of this machine.
    """
    candidates = range(_FIRST_PORT, _FIRST_PORT + _NUM_PORTS_TRIED) if port is None else [port]
    for candidate in candidates:
        try:
            return _bindable(host, candidate)
        except OSError as error:
            # A name that nothing resolves, or an address that this machine does not have, is no matter of ports.
            if isinstance(error, socket.gaierror) or error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise UsageError(f"`--host` must be an address of this machine, got '{host}'; use localhost.") from None
            refusal = error.strerror
    wanted = f"a port from {_FIRST_PORT}" if port is None else f"port {port}"
    raise UsageError(f"`--port` must be free on {host}, but {wanted} is not ({refusal}); use --port 0.")


def _bindable(host: str, port: int) -> int:
    """The port itself, any for 0, if TensorBoard will take it. Raises `OSError` if not."""
    # IPv6 for its addresses alone, as TensorBoard's server goes by: a name is looked up in IPv4.
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, port))
        found = int(server.getsockname()[1])
    with socket.socket() as client:  # it refuses a port at which something answers on localhost, whatever its host
        client.settimeout(1)
        if client.connect_ex(("localhost", found)) == 0:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    return found
