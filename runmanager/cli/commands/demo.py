"""`runmanager demo`: a small grid on the built-in digits."""

from dataclasses import replace
from functools import partial

from runmanager.app.request.command import Command
from runmanager.app.request.sweep_request import Kind
from runmanager.cli.hydra_application import run_cells
from runmanager.cli.sweep_command import with_options
from runmanager.records.files.paths import dated_name

__all__ = ["demo"]


@partial(with_options, kinds=frozenset({Kind.JOB}))
def demo(command: Command) -> int:
    """Run a small grid over learning rates, CPU and CUDA on the built-in digits, and show the results.

    On a machine without CUDA it compares the learning rates. Takes settings and options of `runmanager sweep` too.
    """
    words = command.words[2:]
    given = {*command.given, *(word.partition("=")[0] for word in command.settings)}
    own = {"name": dated_name("demo"), "output_root": "outputs"}
    defaults = [f"{name}={value}" for name, value in own.items() if name not in given]
    words = ("experiment=digits_quick", *defaults, "--yes", *words)
    return run_cells(replace(command, words=(*command.words[:2], *words)), is_single=True)
