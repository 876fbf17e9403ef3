"""What a race has found, as tables and sentences, and as a file."""

import json
import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path

from rich.console import Console
from rich.text import Text

from runmanager.race.heat import DROPPED, LEAST_GAIN, ON_TRIAL, RESTLESS, TAKEN, Raced, label_of, ratio_text
from runmanager.race.search import Tuning
from runmanager.records.files.atomic_files import replace_file
from runmanager.results.stats.descriptive import Estimate
from runmanager.signals import INTERRUPTED_STATUS
from runmanager.text import printable, printable_line, wrapped

_HEADER = ("setting", "value", "speed", "95% interval", "result")
_VALUE, _RESULT = 1, 4  # columns
_GAP = "  "
_WIDE = 1.1  # the end of one that says little
_ABOUT_INTERVALS = (
    "Speed: how many times as fast as with the settings found by then. The intervals of one setting hold together."
)
_ABOUT_DROPPED = "Dropped: slower than another one beyond doubt."
_ABOUT_TRIALS = (
    "Taken on trial: it seems faster, though its interval includes 1; the gain at the end shows whether the settings "
    "found are."
)
_ABOUT_RESUMING = "A race is not resumed: the same command begins a new one."
_ABOUT_REPEATS = (
    "A setting whose values are listed again was raced again, after another one had changed, or as little was known."
)


@dataclass(frozen=True)
class Answer:
    """What was found, the `command` to use, the type of the `device`, and the settings `given`, as typed."""

    found: Tuning
    command: str
    device: str
    given: str

    @property
    def is_shown(self) -> bool:
        """Whether the settings found were shown to be faster."""
        return bool(self.found.chosen) and self.found.gain is not None and self.found.gain.low > 1

    @property
    def is_better(self) -> bool:
        """Whether the settings found are worth a change, by their measured gain, shown or not."""
        gain = self.found.gain
        return bool(self.found.chosen) and gain is not None and gain.value >= LEAST_GAIN

    @property
    def exit_status(self) -> int:
        """1 where the settings given failed, so that nothing could be raced against them."""
        found = self.found
        return INTERRUPTED_STATUS if found.is_interrupted else int(bool(found.broken) and not found.chosen)

    def lines(self) -> list[str]:
        """The answer in sentences: the gain, and the command where there is one to use."""
        found, gain = self.found, self.found.gain
        if found.failed:
            whose = f"given ({found.broken}) and those found" if found.broken else "found"
            return [f"The settings {whose} failed while their gain was measured ({found.failed}). None is faster."]
        if found.broken and not found.chosen:
            return [f"The settings given failed ({found.broken}), so nothing could be raced against them."]
        if found.broken:
            return [
                f"The settings given failed while the others trained ({found.broken}). To use what did not:",
                f"  {self.command}",
            ]
        if gain is None:
            if found.chosen:
                return [
                    f"The gain was not measured{_more_time(found)}. The fastest settings by then:",
                    f"  {self.command}",
                ]
            return [_no_gain(found)]
        if self.is_shown:
            return [f"{_times(gain)} as fast as with {self.given}. To use it:", f"  {self.command}"]
        first = f"Not shown to be faster: the best settings found are {_times(gain)} as fast as with {self.given}"
        if gain.high > RESTLESS * gain.value:
            first += ", on a machine too restless to say more (is it busy?)"
        if not self.is_better:
            return [f"{first}; none of those raced is worth a change."]
        return [f"{first}. To use them all the same:", f"  {self.command}"]


def _times(gain: Estimate) -> str:
    value, low, high = map(ratio_text, (gain.value, gain.low, gain.high))
    return f"{value} times [{low}, {high}]"


def _more_time(found: Tuning) -> str:
    if found.is_interrupted:
        return ", as the race was interrupted"
    return f"; `--seconds {found.enough_seconds}` should do" if found.enough_seconds is not None else ""


def _no_gain(found: Tuning) -> str:
    raced = found.latest()
    highest = max((each.estimate.high for each in raced if each.estimate is not None), default=None)
    if highest is None:
        return f"Nothing was measured{_more_time(found)}."
    missing = [each for each in raced if each.estimate is None]
    left_out = f" ({len(missing)} failed or not measured)" if missing else ""
    if any(each.result in (TAKEN, ON_TRIAL) for each in found.raced):  # other values were raced against these
        return f"No candidate stayed faster than the settings given{left_out}: what was taken lost in a later race."
    if highest <= 1:
        return f"No candidate is faster than the settings given{left_out}."
    if highest > RESTLESS:
        return f"No candidate was shown to be faster{left_out}, on a machine too restless to say more (is it busy?)."
    bound = f"{math.ceil(round(100 * (highest - 1), 6))}%"  # upwards: nothing may be above it
    if highest > _WIDE:
        return (
            f"No candidate was shown to be faster than the settings given{left_out}; one may be, by up to "
            f"{bound}{_more_time(found)}."
        )
    return f"No candidate is faster than the settings given by more than {bound}{left_out}."


def show_answer(answer: Answer, console: Console) -> None:
    """Print the effects of all settings that were raced, why others were not, and the answer last."""
    found = answer.found
    lines = _legend(found.raced)
    lines += [f"Not raced: {name}: {why}." for name, why in found.not_raced.items()]
    if found.enough_seconds is not None and any(each.estimate is not None for each in found.raced):
        lines.append(f"`--seconds {found.enough_seconds}` should do to race all settings.")
    if found.is_interrupted:
        lines += ["Interrupted: this is what is known so far.", _ABOUT_RESUMING]
    table = _table(found.raced, console.width)
    said = (wrapped(printable_line(line), console.width) for line in lines)
    lines = [*([""] if table or lines else []), *table, *said, ""]
    for line in answer.lines():
        is_command = line.startswith(" ")  # in one line, so that it can be copied
        lines.append(line if is_command else wrapped(printable_line(line), console.width))
    for line in lines:
        console.print(Text(printable(line)), soft_wrap=True)


def _legend(raced: Sequence[Raced]) -> list[str]:
    """The sentences that the table needs: none without intervals."""
    lines = [_ABOUT_INTERVALS] if any(each.estimate is not None for each in raced) else []
    lines += [_ABOUT_DROPPED] if any(each.result == DROPPED for each in raced) else []
    lines += [_ABOUT_TRIALS] if any(each.result == ON_TRIAL for each in raced) else []
    values = Counter((each.factor, label_of(each.settings)) for each in raced)
    return lines + ([_ABOUT_REPEATS] if any(count > 1 for count in values.values()) else [])


def _table(raced: Sequence[Raced], width: int) -> list[str]:
    """The lines of a table; where `width` is too little, values and results are broken between words."""
    if not raced:
        return []
    rows = [_HEADER, *(_row(each) for each in raced)]
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, cells)) for cells in columns]
    for at in (_VALUE, _RESULT):
        excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
        longest_word = max(len(word) for cell in columns[at] for word in cell.split())
        widths[at] = max(longest_word, widths[at] - max(excess, 0))
    wrap = partial(textwrap.wrap, break_long_words=False, break_on_hyphens=False)
    lines = []
    for row in rows:
        for parts in zip_longest(*map(wrap, row, widths), fillvalue=""):
            lines.append(_GAP.join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip())
    return lines


def _row(raced: Raced) -> tuple[str, ...]:
    each = raced.estimate
    speed = ("", "") if each is None else (ratio_text(each.value), f"{ratio_text(each.low)} to {ratio_text(each.high)}")
    result = f"{raced.result}: {raced.failure}" if raced.failure else raced.result
    return raced.factor, label_of(raced.settings), *speed, result


def write_tuning(folder: Path, answer: Answer) -> None:
    """Write what was found to `tune.json` in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"command": answer.command, "device": answer.device, "given": answer.given, **asdict(answer.found)}
    replace_file(folder / "tune.json", json.dumps(content, indent=2) + "\n")
