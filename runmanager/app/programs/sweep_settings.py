"""What a request asks of the driver: where the sweep is stored, how it is driven, the words of Hydra that say so."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from runmanager.app.compose.search_space import read_space
from runmanager.app.driver.deciding import DecidingOptions
from runmanager.app.driver.program import Storage
from runmanager.app.driver.search import SearchOptions
from runmanager.app.driver.sweep_driver import DriverOptions
from runmanager.app.programs.cell_metrics import metric_advice
from runmanager.app.request.command import choice_faults, quote_text
from runmanager.app.request.sweep_request import SweepRequest, flag_of, options
from runmanager.launching.plan import PlannedRun, Resume
from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.metric_names import prefers_larger
from runmanager.validation import fault

Key = Callable[[str], str]
"""How the user names an option: `--name` in one command, `hydra.sweeper.name` in another."""


def run_folder_overrides(run: PlannedRun, sweep: SweepPaths) -> list[str]:
    """Return the overrides that make the run's folder the output folder of its job."""
    return [
        f"hydra.sweep.dir={quote_text(str(sweep.root))}",
        f"hydra.sweep.subdir={quote_text(f'runs/{run.paths.name}')}",
    ]


def request_faults(request: SweepRequest, key: Key, *, needs_direction: bool = True) -> list[str]:
    """Return every fault of the options that stand alone or exclude each other; `key` names an option.

    `needs_direction`: of a metric it must be known which values are better.
    """
    faults, unknown = list[str](), dict[str, Any]()
    for name, each in options().items():
        if bad := choice_faults(each, getattr(request, name), key(name)):
            faults += bad
            unknown[name] = each.default
    request = replace(request, **unknown)  # what follows needs values that are known
    faults += storage_of(request, key).faults(key)
    better, metric = request.better, request.metric
    if better is not None and metric is None and len(request.scalar) != 1:
        faults.append(fault(key("better"), f"be given with `{key('metric')}`, whose direction it is", "it alone"))
    if needs_direction and metric is not None and better is None and prefers_larger(metric) is None:
        faults.append(
            f"`{key('better')}` must be given for {metric}, got none; its name does not show which is better."
        )
    faults += [*([] if "search" in unknown else _search_faults(request, key)), *_deciding_faults(request, key)]
    resume = request.resume_with
    if resume is not None and not all(resume.partition("=")[::2]):
        faults.append(fault(key("resume_with"), "be NAME=FILE", repr(resume)))
    return faults


def _search_faults(request: SweepRequest, key: Key) -> list[str]:
    limits = {"trials": request.trials, "max_seconds": request.max_seconds}
    if request.search is None:
        rule, given = f"be given with `{key('search')}`", limits | {"prune": request.prune}
        return [fault(key(name), rule, value) for name, value in given.items() if value is not None]
    faults = [
        fault(key(name), "be above 0", value) for name, value in limits.items() if value is not None and value <= 0
    ]
    if all(value is None for value in limits.values()):
        rule = f"be given with `{key('trials')}` or `{key('max_seconds')}`"
        faults.append(fault(key("search"), rule, "neither", f"add {key('trials')}{_value_after(key('trials'))}"))
    if request.order is not None:
        faults.append(
            fault(key("order"), "be left out of a search", request.order, "it decides late which cell is next")
        )
    return faults


def _deciding_faults(request: SweepRequest, key: Key) -> list[str]:
    if not request.until_decided:
        rule = f"be given with `{key('until_decided')}`"
        return [] if request.max_runs is None else [fault(key("max_runs"), rule, request.max_runs)]
    rule, others = f"be left out with `{key('until_decided')}`", {"order": request.order, "search": request.search}
    return [
        fault(key(name), rule, value, "it decides late which cell is next")
        for name, value in others.items()
        if value is not None
    ]


def search_of(
    request: SweepRequest, words: Sequence[str], texts_of: Callable[[str], Sequence[str]], key: Key
) -> SearchOptions | None:
    """Return what a request asks of a search, if it does, given how its program reads a word of several values."""
    if request.search is None:
        return None
    space = read_space(words, texts_of, option=key("search"), seed_names=request.seed_name)
    return SearchOptions(request.search, space, request.trials, request.max_seconds, request.prune, key)


def storage_of(request: SweepRequest, key: Key = flag_of) -> Storage:
    """Return where the sweep is stored; `key` names an option."""
    return Storage(
        request.name,
        request.output_root,
        Resume(request.resume),
        request.rerun_changed,
        rerun_with=_given(key("rerun_changed")),
        restore_with=_given(key("restore")),
    )


def _value_after(option: str) -> str:
    """A number after an option, as a flag or as a setting."""
    return " 30" if option.startswith("--") else "=30"


def _given(option: str) -> str:
    """An option without a value, as a flag or as a setting."""
    return option if option.startswith("--") else f"{option}=true"


def driver_options(
    request: SweepRequest,
    *,
    named: Callable[[Sequence[str], str], Sequence[str]],
    key: Key = flag_of,
    **others: Any,
) -> DriverOptions:
    """Return how the sweep is driven; `named`: see `DriverOptions`, as for the `others`; `key` names an option."""
    return DriverOptions(
        dry_run=request.dry_run,
        quiet=request.quiet,
        yes=request.yes,
        restore=request.restore,
        order=request.order,
        notify=request.notify,
        notify_name=key("notify"),
        deciding=DecidingOptions(request.max_runs, key) if request.until_decided else None,
        order_name=key("order"),
        metric=request.metric,
        without_metrics=metric_advice,
        named=named,
        **others,
    )
