"""This package's application with cells that only write a run folder and record, and return immediately.

python -m benchmarks.instant_application -m seed=0,1,2
"""

import datetime
import sys
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig

from runmanager.app.compose.schema import plain_config, register_resolvers
from runmanager.app.hydra_main import main
from runmanager.records.files.paths import RunPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import RunRecord
from runmanager.records.run.status import Status
from runmanager.records.settings.signature import signature
from runmanager.records.storage.ownership import claim_run

__all__ = ["return_immediately"]


def return_immediately(cfg: Any) -> None:
    """Claim the run and record it as finished."""
    register_resolvers()
    paths = RunPaths(Path(HydraConfig.get().runtime.output_dir))
    config = plain_config(cfg)
    record = RunRecord(
        name=paths.name,
        signature=signature(config),
        status=Status.RUNNING,
        config=config,
        started_at=datetime.datetime.now(datetime.UTC).isoformat(),
        owner=ProcessIdentity.current(),
    )
    folder = claim_run(paths, record)
    folder.write(status=Status.FINISHED, ended_at=datetime.datetime.now(datetime.UTC).isoformat())


if __name__ == "__main__":
    sys.exit(main(task=return_immediately))
