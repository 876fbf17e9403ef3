"""`runmanager tensorboard`: a sweep and its runs in TensorBoard."""

import importlib.util
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from runmanager.cli.arguments import SweepName
from runmanager.cli.printing import print_text
from runmanager.cli.serving.local_server import (
    base_address,
    exit_on_signals,
    forwarding_line,
    free_port,
    temporary_folder,
)
from runmanager.errors import RecordError, UsageError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.standard_streams import print_line
from runmanager.records.sweep.lookup import find_sweep

if TYPE_CHECKING:
    from runmanager.tracking.tensorboard.board_server import BoardServer
    from runmanager.tracking.tensorboard.logdir import SweepLogdir, SweepSummaryWriter

_REFRESH_SECONDS = 2  # how often new runs are linked and event files are read


def tensorboard(
    sweep: SweepName,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Default: the first free port from 6006; 0: any free port.")
    ] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; localhost is reachable from this machine only.")
    ] = "localhost",
) -> None:
    """Show a sweep's runs and their comparison in TensorBoard until Ctrl-C."""
    paths = find_sweep(sweep)
    if importlib.util.find_spec("tensorboard") is None:
        raise UsageError("TensorBoard must be installed, got no such package; pip install tensorboard.")
    free_port(host, port)  # before the slow parts
    exit_on_signals()  # through the removal of the folder
    with temporary_folder("tensorboard") as folder:
        _serve(paths, folder, host=host, port=port)


def _serve(paths: SweepPaths, folder: Path, *, host: str, port: int | None) -> None:
    from runmanager.tracking.tensorboard.board_server import BoardServer, data_server

    with BoardServer() as board:  # imports TensorBoard, which takes longer than the links
        from runmanager.tracking.tensorboard.logdir import SweepLogdir, SweepSummaryWriter

        runs = SweepLogdir(paths, folder)
        runs.refresh()
        sweep = SweepSummaryWriter(paths, runs)
        sweep.declare()
        with data_server(runs.root, folder, reload_seconds=_REFRESH_SECONDS) as data:
            bound = _launch(board, runs.root, data.address(), title=paths.name, host=host, port=port)
            first_page = f"{base_address(host, bound)}{sweep.first_tab}"
            print_text(f"TensorBoard of {paths.root}: {first_page} (Ctrl-C ends it)\n")
            if line := forwarding_line(bound, host):
                print_text(f"{line}\n")
            faults: set[str] = set()
            while True:
                time.sleep(_REFRESH_SECONDS)
                board.require_life()
                _refresh(runs, sweep, faults)


def _refresh(runs: "SweepLogdir", sweep: "SweepSummaryWriter", faults: set[str]) -> None:
    """Serve new data. No error stops the server; a message that is not in `faults` is printed and added."""
    try:
        runs.refresh()
        sweep.refresh()
    except (FileNotFoundError, NotADirectoryError, RecordError):
        pass  # may succeed at the next refresh; what is shown stays
    except Exception as error:
        fault = f"New data of the sweep could not be shown ({type(error).__name__}: {error}); the rest is shown."
        if fault not in faults:
            faults.add(fault)
            print_line(fault, sys.stderr)


def _launch(board: "BoardServer", folder: Path, data: str, *, title: str, host: str, port: int | None) -> int:
    """Serve the folder and return the port. A port that was taken since it was found free is skipped."""
    from runmanager.tracking.tensorboard.board_server import serving_options

    while True:  # `free_port` raises when no port is left
        chosen = free_port(host, port)
        options = serving_options(folder, title=title, host=host, port=chosen, reload_seconds=_REFRESH_SECONDS)
        if board.serve(options, data_server=data):
            return chosen
