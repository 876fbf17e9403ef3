"""Accelerate: `Accelerator(log_with=RunManagerTracker())` records the metrics and hyperparameters of a training.

Accelerate passes nothing else to a tracker. Phases, epochs and losses are recorded where the loop calls the run:

```python
run = accelerator.get_tracker("runmanager", unwrap=True)
for images, labels in run.batches(loader):
    ...
    run.track(loss, samples=len(labels))
```
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runmanager.integrations.framework_run import FrameworkRun, missing_package, settings_of_hyperparameters
from runmanager.tracking.inactive_run import InactiveRun
from runmanager.tracking.run import ActiveRun

try:
    from accelerate.state import PartialState
    from accelerate.tracking import GeneralTracker
except ImportError as accelerate_error:
    raise missing_package("accelerate", accelerate_error) from None

__all__ = ["RunManagerTracker"]


class RunManagerTracker(GeneralTracker):
    """Records what an `Accelerator` logs; its `config` is the settings of the run, by default the command line's.

    In a cell of a sweep the run is the cell's; anywhere else it is a sweep of one run below `outputs/`, or in the
    folder `root`. It starts in `init_trackers`, and ends in `end_training` or with the process. Accelerate has trackers
    in the main process alone: what the other ranks do is recorded where all of them call `runmanager.start_run`.
    """

    name = "runmanager"
    requires_logging_directory = False
    main_process_only = True

    def __init__(self, root: str | Path | None = None) -> None:
        super().__init__()
        self._bridge = FrameworkRun(root, is_alone=True)

    @property
    def tracker(self) -> ActiveRun | InactiveRun:
        """The run, for everything that it offers; it starts now, unless it has."""
        self._start(None)
        assert self._bridge.run is not None
        return self._bridge.run

    def _start(self, params: Mapping[str, Any] | None) -> None:
        if not self._bridge.has_ended:
            self._bridge.start(PartialState().device, params, None)

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Start the run with these settings."""
        if PartialState().is_main_process:
            self._start(settings_of_hyperparameters(values))

    def log(self, values: Mapping[str, Any], step: int | None = None, **_: Any) -> None:
        """Log numbers: to the open epoch or interval of steps, else to the summary of the run."""
        if PartialState().is_main_process:
            self._start(None)
            self._bridge.log(values, step=step)

    def finish(self) -> None:
        """End the run."""
        self._bridge.end()
