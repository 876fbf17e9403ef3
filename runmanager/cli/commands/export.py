"""`runmanager export`: a stored sweep written for another tool."""

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from runmanager.cli.arguments import SweepName
from runmanager.cli.printing import print_text, warn_damaged
from runmanager.errors import UsageError
from runmanager.records.files.file_errors import require_writable
from runmanager.records.sweep.lookup import find_sweep

_require_writable_folder = partial(require_writable, "`--folder`", way_out="give another one with --folder")


class Target(StrEnum):
    """Targets of an export."""

    MLFLOW = "mlflow"
    WANDB = "wandb"
    PARQUET = "parquet"


def export(
    sweep: SweepName,
    to: Annotated[Target, typer.Option("--to", help="Needs the extra of the same name: mlflow, wandb or parquet.")],
    uri: Annotated[
        str | None, typer.Option(help="mlflow: the tracking store. Default: sqlite:///mlflow.db in the current folder.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="parquet: default the sweep's folder. wandb: default the current folder.")
    ] = None,
) -> None:
    """Write a sweep to MLflow, offline Weights & Biases runs or Parquet files. A repeated export adds what is new."""
    from runmanager.results.load.loader import read_results

    if uri is not None and to is not Target.MLFLOW:
        raise UsageError(f"`--uri` must go with --to mlflow, got --to {to}; --folder sets where its files go.")
    if folder is not None and to is Target.MLFLOW:
        raise UsageError("`--folder` must go with --to wandb or parquet, got --to mlflow; --uri names the store.")
    paths = find_sweep(sweep)
    contents, _ = read_results(paths)
    warn_damaged([each.message for each in contents.damaged])
    if to is Target.PARQUET:
        from runmanager.results.export.parquet import export_to_parquet

        with _require_writable_folder(folder or paths.root):
            done = export_to_parquet(paths, folder=folder)
    elif to is Target.MLFLOW:
        from runmanager.results.export.mlflow import DEFAULT_URI, export_to_mlflow

        done = export_to_mlflow(contents, uri=uri or DEFAULT_URI)
    else:
        from runmanager.results.export.wandb import export_to_wandb

        with _require_writable_folder(folder or Path()):
            done = export_to_wandb(contents, folder=folder or Path())
    print_text(f"{done.describe()}\n")
