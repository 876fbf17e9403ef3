"""What a request asks of the driver: where the sweep is stored, and how it is driven; and what it must not ask."""

from collections.abc import Callable, Sequence
from typing import Any

from runmanager.app.driver.program import Storage
from runmanager.app.driver.sweep_driver import DriverOptions
from runmanager.app.programs.metric_advice import metric_advice
from runmanager.app.request.sweep_request import SweepRequest
from runmanager.launching.plan import Resume
from runmanager.records.run.metric_direction import BETTER, prefers_larger
from runmanager.validation import fault

__all__ = ["driver_options", "request_faults", "storage_of"]

Key = Callable[[str], str]
"""How the user names an option: `--name` in one command, `hydra.sweeper.name` in another."""


def request_faults(request: SweepRequest, key: Key, *, needs_direction: bool = True) -> list[str]:
    """Return every fault of the options that stand alone or exclude each other; `key` names an option.

    `needs_direction`: of a metric it must be known which values are better.
    """
    if request.resume not in list(Resume):
        faults = [fault(key("resume"), f"be one of {', '.join(Resume)}", request.resume)]
    else:
        faults = storage_of(request).faults(key)
    better, metric = request.better, request.metric
    if better is not None and better not in BETTER:
        faults.append(fault(key("better"), "be max or min", better))
    elif better is not None and metric is None and len(request.scalar) != 1:
        faults.append(fault(key("better"), f"be given with `{key('metric')}`, whose direction it is", "it alone"))
    if needs_direction and metric is not None and better is None and prefers_larger(metric) is None:
        faults.append(
            f"`{key('better')}` must be given for {metric}, got none; its name does not show which is better."
        )
    resume = request.resume_with
    if resume is not None and not all(resume.partition("=")[::2]):
        faults.append(fault(key("resume_with"), "be NAME=FILE", repr(resume)))
    return faults


def storage_of(request: SweepRequest, *, rerun_with: str = "", restore_with: str = "") -> Storage:
    """Return where the sweep is stored; the last two say how its command asks for these options."""
    return Storage(
        request.name,
        request.output_root,
        Resume(request.resume),
        request.rerun_changed,
        rerun_with=rerun_with or "--rerun-changed",
        restore_with=restore_with or "--restore",
    )


def driver_options(
    request: SweepRequest,
    *,
    named: Callable[[Sequence[str], str], Sequence[str]],
    notify_name: str = "--notify",
    **others: Any,
) -> DriverOptions:
    """Return how the sweep is driven; `named`: see `DriverOptions`, as for the `others`."""
    return DriverOptions(
        dry_run=request.dry_run,
        quiet=request.quiet,
        yes=request.yes,
        restore=request.restore,
        notify=request.notify,
        notify_name=notify_name,
        metric=request.metric,
        without_metrics=metric_advice,
        named=named,
        **others,
    )
