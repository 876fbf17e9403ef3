"""The best cell for people and programs: a headline, sentences, sections of a text, JSON."""

from collections.abc import Sequence
from typing import Any

from runmanager.records.run.run_record import counted_word
from runmanager.records.storage.reader import StoredRun
from runmanager.results.compare.verdict import DIFFERENT, NOT_MEASURED
from runmanager.results.findings.best import BestCell, RankedCell
from runmanager.results.findings.comparison_findings import without_contention
from runmanager.results.findings.outcomes import RANKED_BY_SHARED_SEEDS
from runmanager.results.metrics.metric import LAST, Metric
from runmanager.results.metrics.metric_lookup import printed_notes
from runmanager.results.table_model.columns import setting_name
from runmanager.results.table_model.formatting import Section
from runmanager.text import format_value, pluralize

_MAX_NAMED = 10


def best_headline(best: BestCell) -> str:
    """Describe the best cell in one line."""
    numbers = _best_epochs(best)
    epochs = f", at {_describe_epochs(best, numbers)}" if numbers else ""
    return f"the best {best.metric.name} is {_figure(best.winner, best.metric)} with {best.winner.side.label}{epochs}."


def _best_epochs(best: BestCell) -> list[int]:
    """Return the epochs of the winner's values, where the best ones count; none for results of the whole run."""
    if best.metric.at == LAST:
        return []
    return sorted({number for run, _ in best.winner.runs if (number := _epoch(best.metric, run)) is not None})


def _describe_epochs(best: BestCell, numbers: Sequence[int]) -> str:
    """Name epochs: `epoch 4`, or `epochs 4 to 6` of several runs."""
    word = counted_word(best.winner.runs[0][0].record)
    if len(numbers) == 1:
        return f"{word} {numbers[0]}"
    return f"{word}s {numbers[0]} to {numbers[-1]}"


def _epoch(metric: Metric, run: StoredRun) -> int | None:
    """Return the epoch of a run's value; None where it is the last one by definition, or no epoch's."""
    return None if metric.epoch_of is None else metric.epoch_of(run)


def best_sentences(best: BestCell) -> list[str]:
    """Describe how sure the ranking is, and by which metric it is where that is not the usual one."""
    lines = []
    if best.preferred_metric is not None:
        lines.append(
            f"No cell has a {best.preferred_metric} in each of its finished runs, so this is by {best.metric.name}."
        )
    if best.is_by_shared_seeds:
        lines.append(RANKED_BY_SHARED_SEEDS)
    if _best_epochs(best):
        lines.append(
            "Each run counts with its best epoch, which was picked after looking and so flatters the result: the last "
            "epochs show what training ends with."
        )
    lines += [*printed_notes(best.metric.name, [run for run, _ in best.winner.runs])]
    lines += [*_describe_lost(best), *best.contradictions]
    if best.runner_up is None:
        return [*lines, "It is the only cell with this metric, so there is nothing to compare it with."]
    lines.append(f"Next is {best.runner_up.side.label} with {_figure(best.runner_up, best.metric)}.")
    if best.verdict in DIFFERENT:
        reason = f" ({best.reason})" if best.reason else ""
        level = "one-sided 95%; `compare` is two-sided"
        lines.append(f"The difference is outside the noise: {_describe_effect(best)} ({level}){reason}.")
    elif best.verdict == NOT_MEASURED:
        lines.append(f"Whether it is truly behind is not known: {without_contention(best.reason or '')}.")
    lines += [*_describe_rivals(best), *_describe_unmeasured(best)]
    if best.num_ties:
        lines.append(f"{pluralize(best.num_ties, 'other cell has', 'other cells have')} exactly the same mean.")
    if best.num_cells > 2 and (best.rivals or best.selection_bias is None or best.search):
        lines.append(_describe_selection_bias(best))
    return lines


def _describe_effect(best: BestCell) -> str:
    """The effect of the winner against the next one, with the end of its one-sided interval: `0.13, at least 0.11`."""
    assert best.effect is not None  # a pair with a verdict has one
    metric, estimate = best.metric, best.effect.estimate
    is_above = estimate.value > (0.0 if metric.effect == "difference" else 1.0)
    value, bound = metric.format_effect(estimate.value), metric.format_ends(estimate.low, estimate.high)[not is_above]
    if metric.effect == "difference":  # how far ahead, in either direction
        return f"{value.removeprefix('-')}, at least {bound.removeprefix('-')}"
    words = "times" if metric.effect == "ratio" else "times as fast"
    return f"{value} {words}, at {'least' if is_above else 'most'} {bound}"


def _describe_lost(best: BestCell) -> list[str]:
    """Name the runs with a value that was not finite, and say what follows from it."""
    if not best.lost:
        return []
    names, metric = _joined([run.record.name for run in best.lost]), best.metric
    if metric.at != LAST:
        return [f"Epochs whose {metric.name} was not finite do not count: there are some in {names}."]
    what = "is not finite" if metric.epoch_of is not None else "is missing or not finite"
    left_out = "its cell is left out" if len(best.lost) == 1 else "their cells are left out"
    return [f"The last {metric.name} {what} in {names}, so {left_out}."]


def _describe_rivals(best: BestCell) -> list[str]:
    """Name the cells that are not shown to be worse, with the reason for the doubt where there is one."""
    if not best.rivals:
        return []
    count = f"{len(best.rivals)} cells are" if len(best.rivals) > 1 else "One cell is"
    lines = [f"{count} not shown to be worse than the best one: {_name(best.rivals)}.", _describe_one_more_seed(best)]
    is_about_rivals = best.reason and best.verdict not in (*DIFFERENT, NOT_MEASURED)
    return [*lines, f"({best.reason}.)"] if is_about_rivals else lines


def _describe_one_more_seed(best: BestCell) -> str:
    decided, rivals = best.num_decided_by_a_seed, len(best.rivals)
    if rivals == 1:
        return f"One more seed of both would likely {'rule it out' if decided else 'not rule it out'}."
    which = "none" if not decided else "all" if decided == rivals else f"about {decided}"
    return f"One more seed of each would likely rule out {which} of them."


def _describe_unmeasured(best: BestCell) -> list[str]:
    """Name the cells behind the runner-up that could not be compared, where others could."""
    others = [each for each in best.unmeasured if each is not best.runner_up]
    if not others or len(best.unmeasured) == best.num_cells - 1:
        return []
    count = f"{len(others)} more cells" if len(others) > 1 else "One more cell"
    return [f"{count} could not be compared: {_name(others)}."]


def _describe_selection_bias(best: BestCell) -> str:
    how = f"found by a search ({best.search}) and picked" if best.search else "picked"
    picked = f"The best of {best.num_cells} cells was {how} after looking, so its mean is likely a little too good"
    if best.selection_bias is None:
        return f"{picked}: by how much is not known without more seeds."
    size = best.metric.format_value(best.selection_bias)
    return f"{picked}: by {size} on average, if the {len(best.rivals) + 1} cells that may be the best are equal."


def _name(cells: Sequence[RankedCell]) -> str:
    return _joined([each.side.label for each in cells])


def _joined(labels: Sequence[str]) -> str:
    """Join the first labels, and count the others."""
    more = len(labels) - _MAX_NAMED
    return "; ".join(labels[:_MAX_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _figure(cell: RankedCell, metric: Metric) -> str:
    count = cell.spread.count
    # Named, because a results table with the seeds in one row has the arithmetic mean.
    kind = "geometric mean, " if count > 1 and metric.effect != "difference" else ""
    return f"{metric.format_value(cell.spread)} ({kind}n={count})"


def best_sections(best: BestCell, *, trust: bool = False) -> list[Section]:
    """Describe the winner: its runs, the best first; its settings; what is left out; and where the weights are.

    With `trust`, the call that loads the weights passes it on.
    """
    runs = [(run.record.name, _of_run(best.metric, run, value)) for run, value in best.winner.runs]
    lines = []
    if best.winner.num_unfinished:
        lines.append(f"{best.winner.num_unfinished} more of its runs did not finish.")
    lacking = best.num_left_out - best.num_not_finite
    for count, why in (
        (best.num_not_finite, f"the {best.metric.name} of a finished run there is not finite"),
        (lacking, "not every finished run there has the metric"),
    ):
        if count:
            lines.append(f"{pluralize(count, 'cell is', 'cells are')} left out: {why}.")
    varying = best.winner.settings
    return [
        Section("Runs", runs, ("run", best.metric.name), lines),
        Section("Settings that vary", [(setting_name(name), format_value(value)) for name, value in varying.items()]),
        Section("Weights of the first", lines=_weights(best.run, trust=trust)),
    ]


def _of_run(metric: Metric, run: StoredRun, value: float) -> str:
    epoch = _epoch(metric, run)
    return metric.format_value(value) + ("" if epoch is None else f" ({counted_word(run.record)} {epoch})")


def _weights(stored: StoredRun, *, trust: bool) -> list[str]:
    paths = stored.paths
    run = f"{paths.root.parent.parent}/{stored.name}"
    trusting = ", trust=True" if trust else ""
    if stored.record.unsigned is not None and not stored.is_adopted:  # `load_model` builds models of the built-in job
        if paths.best.exists():
            return [str(paths.best), "the state_dict of the network in its best epoch is its `model`"]
        if paths.checkpoint.exists():
            return [str(paths.checkpoint), "the state that its loop resumes from"]
        return ["runmanager kept none; what its program may have saved is not recorded"]
    if paths.best.exists():
        return [str(paths.best), f"runmanager.load_model({run!r}, best=True{trusting})"]
    if paths.checkpoint.exists():
        return [str(paths.checkpoint), f"runmanager.load_model({run!r}{trusting})"]
    if stored.is_adopted:
        return [f"runmanager kept none; its program was adopted from {stored.record.adopted}, and may have saved some"]
    return ["none were kept; checkpoint.keep_best=val_accuracy keeps the best ones"]


def best_document(best: BestCell, *, command: Sequence[str] | None) -> dict[str, Any]:
    """Return the best cell as an object: the metric, the winner with its runs, the runner-up, verdict and reason.

    `command` runs the cell; null where there is none to give. The epoch of each value is there for logged metrics and
    for best epochs; any other value of an epoch is the last one's, or that of the last interval of steps that has any.
    """
    return {
        "metric": best.metric.name,
        **({"at": best.metric.at} if best.metric.epoch_of is not None else {}),
        "best": _plain(best.winner),
        "runner_up": None if best.runner_up is None else _plain(best.runner_up),
        "verdict": best.verdict,
        "reason": best.reason,
        "rivals": [each.settings for each in best.rivals],
        "unmeasured": [each.settings for each in best.unmeasured],
        "flattery": best.selection_bias,
        "num_cells": best.num_cells,
        "num_ties": best.num_ties,
        "num_left_out": best.num_left_out,
        **({"not_finite": [run.record.name for run in best.lost]} if best.lost else {}),
        "command": command and list(command),
    }


def _plain(cell: RankedCell) -> dict[str, Any]:
    spread = cell.spread
    return {
        "settings": cell.settings,
        "mean": float(spread),
        "deviation": spread.deviation,
        "seeds": spread.count,
        "unfinished": cell.num_unfinished,
        "runs": [
            {"run": run.record.name, "value": value, "folder": str(run.paths.root), **_epoch_field(cell, run)}
            for run, value in cell.runs
        ],
    }


def _epoch_field(cell: RankedCell, run: StoredRun) -> dict[str, int]:
    epoch = _epoch(cell.side.metric, run)
    return {} if epoch is None else {"epoch": epoch}
