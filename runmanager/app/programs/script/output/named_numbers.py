"""The numbers in lines of text, each with the name that its line gives it, and what that name says.

A line is split into its numbers and the texts between them. Lines with the same texts have one *shape*, whose names are
looked for once; from its second line on a shape is one regular expression. So a log of millions of lines costs little.
"""

import ast
import contextlib
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any

from runmanager.app.programs.script.output.headings import BEST, NumberTable, heading_of
from runmanager.records.run import metric_names


class Said(StrEnum):
    """What a line says of a number that it names: of nothing else does it give the name."""

    RESULT = "result"
    MARKED = "marked"  # a result that the sentence calls the best so far
    UNCERTAIN = "uncertain"  # it may be a result


@dataclass(frozen=True)
class NamedNumber:
    """A number of a shape: its name, what is said of it, and which of a line's numbers it is, counted from 0.

    `of` is the one that it is divided by, `of_batch` the one that counts where this one is a change, `hundred` is 100
    for a percentage. Where it `needs_point`, a whole number is something else unless the name was found before.
    `expression` finds it in lines of this shape.
    """

    name: str
    said: Said
    at: int
    expression: str
    of: int | None = None
    of_batch: int | None = None
    hundred: float = 1.0
    needs_point: bool = False


@dataclass(frozen=True)
class _Shape:
    """What lines with the same `texts` between their numbers have: named numbers, and whether they name samples."""

    texts: tuple[str, ...]
    numbers: tuple[NamedNumber, ...]
    names_samples: bool

    @cached_property
    def line(self) -> re.Pattern[str]:
        """An expression for such a line, with a group for each number."""
        wanted = {at for each in self.numbers for at in (each.at, each.of, each.of_batch)}
        groups = [_ONE_NUMBER if at in wanted else _ANY_NUMBER for at in range(len(self.texts) - 1)]
        texts = [self._digits_apart(text) for text in self.texts]
        return re.compile("".join(f"{text}{group}" for text, group in zip(texts, [*groups, ""], strict=True)))

    def _digits_apart(self, text: str) -> str:
        """An expression for a text with any digits in its words, as in `img_07.png`, but for those of a metric."""
        parts = re.split(r"(\w*\d\w*)", text)
        for at, word in enumerate(parts):
            is_name = metric_names.has_known_word(word) or any(word in each.name for each in self.numbers)
            parts[at] = re.escape(word) if is_name else re.sub(r"\d+", r"\\d+", re.escape(word))
        return "".join(parts)


_EXPONENT = r"(?:[eE][-+]?\d+)?"
_THOUSANDS = r"(?:,\d{3})+(?!\d)(?:\.\d+)?"
_UNSIGNED = rf"\d{{1,3}}{_THOUSANDS}|\d+\.?\d*{_EXPONENT}|\.\d+{_EXPONENT}|(?i:nan|inf(?:inity)?)\b"
_ONE_NUMBER = rf"([-+]?(?>{_UNSIGNED}))"
_ANY_NUMBER = r"([-+\d.,]+(?:[eE][-+]?\d+)?|[-+]?(?i:nan|inf(?:inity)?))"
# Its first sign is looked for before what must not stand in front of it: the search then skips most of a line at once.
_NUMBER = re.compile(
    r"([-+.\dnNiI](?<![\w.@$].)(?<![\w.][-+].)(?:"
    rf"(?<=\d)(?:\d{{0,2}}{_THOUSANDS}|\d*\.?\d*{_EXPONENT})"
    rf"|(?<=[-+])(?:{_UNSIGNED})"
    rf"|(?<=\.)\d+{_EXPONENT}|(?<=[nN])(?i:an)\b|(?<=[iI])(?i:nf(?:inity)?)\b))"
)
_NOT_FINITE = re.compile(r"(?i)\b(?:nan|inf)")
_BAR = re.compile(r"(?<=%)\|[^|]*\||\[[=>.\s]*\]|[━╸╺─█▉▊▋▌▍▎▏░▒▓]{3,}\s*")  # tqdm's, Keras', rich's
_HASH = re.compile(r"(?<![\w.])(?=\d*[a-f])(?=[a-f]*\d)[\da-f]{8,}(?!\w|[-+]\d)")
_MEMBER = re.compile(r"\s+(['\"]).*\1:\s*0[\s\]}),]*")  # of an object over several lines
_MAX_LINE = 2**13  # characters; what is longer is data
_MAX_SHAPES = 2**12
_MAX_SAME = 8  # shapes that differ in the digits of words


class NamedNumbers:
    """Finds the results in lines, in order, and `with_uncertain` what may be one.

    `settings` are names whose numbers are none.
    """

    def __init__(self, settings: Collection[str] = (), *, with_uncertain: bool = False) -> None:
        self._settings = frozenset(map(metric_names.name_key, settings))
        self._with_uncertain = with_uncertain
        self._shapes: dict[bytes, list[_Shape]] = {}  # by a line of theirs without its digits
        self._found: set[str] = set()
        self._forgotten: set[str] = set()
        self._heading = ""  # of the lines below
        self._table = NumberTable(self._settings)

    def find(self, line: str) -> Iterator[tuple[NamedNumber, float]]:
        """Yield each result of the next line, with its value.

        A sentence that calls a value the best so far counts only where others name it too: else the last is the best.
        """
        line = line[:_MAX_LINE]
        if any(sign in line for sign in ("%|", "[=", "━", "██")):
            line = _BAR.sub("|", line)  # else each length of a bar would be a shape
        for column, cell in self._table.find(line):
            yield NamedNumber(column, Said.RESULT, 0, ""), cell
        shape, texts = self._read(line)
        if shape is None:
            return
        is_below = self._heading and line[:1].isspace() and not shape.names_samples
        self._heading = self._heading if line[:1].isspace() else ""
        if self._heading == BEST:
            return
        for number in shape.numbers:
            value = _value(number, texts)
            name = f"{self._heading} {number.name}" if is_below else number.name
            if name not in self._found:
                if value is None or number.said is Said.MARKED or (number.needs_point and value.is_integer()):
                    continue
                self._found.add(name)
            if value is not None and name not in self._forgotten:
                yield (replace(number, name=name) if is_below else number), value

    def forget(self, name: str) -> None:
        """Find no further numbers of a name, which are known by another one."""
        self._forgotten.add(name)

    def _read(self, line: str) -> tuple[_Shape | None, Sequence[str]]:
        """The shape of a line and its numbers; None where it has no names of interest."""
        encoded = line.encode("utf-8", "surrogatepass")
        key = encoded.translate(None, b"0123456789")
        if len(key) == len(encoded) and _NOT_FINITE.search(line) is None:
            if line.strip():
                self._heading = heading_of(line)
                self._table.read_header(line)
            return None, ()
        known = self._shapes.get(key, [])
        for shape in known:
            if (found := shape.line.fullmatch(line)) is not None:
                return shape, found.groups()
        if (without_hashes := _HASH.sub("id", line)) != line:
            return self._read(without_hashes)
        parts = _NUMBER.split(line)
        shape = self._learned(tuple(parts[::2]))
        if len(self._shapes) >= _MAX_SHAPES:
            self._shapes.clear()
        self._shapes[key] = [*known[-_MAX_SAME:], shape]
        return shape, parts[1::2]

    def _learned(self, texts: tuple[str, ...]) -> _Shape:
        if not (self._with_uncertain or any(map(metric_names.has_known_word, texts))):
            return _Shape(texts, (), False)
        found = _of_object(texts)
        numbers = _Line(texts).numbers() if found is None else found
        numbers = [each for each in numbers if metric_names.name_key(each.name) not in self._settings]
        names = [each.name for each in numbers]
        is_part = _MEMBER.fullmatch("0".join(texts)) is not None  # of what?
        judged = [  # which of two is it?
            replace(each, said=Said.UNCERTAIN) if is_part or names.count(each.name) > 1 else each for each in numbers
        ]
        wanted = (each for each in judged if self._with_uncertain or each.said is not Said.UNCERTAIN)
        return _Shape(texts, tuple(wanted), any(map(metric_names.samples_words, texts)))


def _value(number: NamedNumber, texts: Sequence[str]) -> float | None:
    """The value of a number, given all of its line; None where it is none."""
    text = texts[number.at]
    if number.of is not None:
        whole = texts[number.of]
        is_share = text.isdecimal() and whole.isdecimal() and int(text) <= int(whole) > 0
        return int(text) / int(whole) if is_share else None
    if number.of_batch is not None and text[0] in "+-" and text[0] != texts[number.of_batch][0]:
        text = texts[number.of_batch]  # `f1 0.81 (+0.02)`
    return float(text.replace(",", "")) / number.hundred


_CODE = 700_000_000  # and more: what stands for the numbers of a line while it is read as an object
_CODE_IN_NAME = str(_CODE)[:6]
_GROUP = r"([-+.\deE]+|nan)"


def _of_object(texts: Sequence[str]) -> list[NamedNumber] | None:
    """The numbers of a JSON or Python object with which a line ends; None where it is none."""
    begin, end = texts[0].find("{"), texts[-1].rfind("}")
    if begin < 0 or end < 0 or texts[-1][end + 1 :].strip() or _NO_OUTPUT.search(texts[0][:begin]):
        return None
    codes = [str(_CODE + at) for at in range(len(texts) - 1)]
    ends = [*texts[1:-1], texts[-1][: end + 1]]
    text = texts[0][begin:] + "".join(code + each for code, each in zip(codes, ends, strict=True))
    found: Any = None
    for read in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            found = read(text)
            break
    if not isinstance(found, dict):
        return None
    leaves = list(_leaves(found))
    samples = [each for _, each in leaves if isinstance(each, str) and metric_names.samples_words(each) == [each]]
    numbers = []
    for name, value in leaves:
        if str(value) in codes and _CODE_IN_NAME not in name:
            at = codes.index(str(value))
            full = f"{samples[0]} {name}" if len(samples) == 1 and not metric_names.samples_words(name) else name
            key = texts[at][texts[at].rfind(name.rpartition("/")[2]) - 1 :]
            if (said := _said_by(full)) is None:
                continue
            expression = _escaped(key) + _GROUP
            numbers.append(NamedNumber(full, said, at, expression, needs_point=said is Said.UNCERTAIN))
    return numbers


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        yield name, value
        return
    for key, each in value.items():
        yield from _leaves(each, f"{name}/{key}" if name else str(key))


@lru_cache(maxsize=2**10)
def _said_by(name: str) -> Said | None:
    """What a name says by its words; None where they say that it is no result."""
    if metric_names.is_result(name) and name not in ("map", "Map"):  # the verb
        return Said.RESULT
    return Said.UNCERTAIN if metric_names.may_be_result(name) else None


_LIMITS = re.compile(
    r"[|│┃║,;\t()\[\]{}<>•#*]+|\s[-\u2013\u2014]+\s|\s{2,}|[:.!?]\s|(?<=\w):(?=[A-Za-z])|=\s?(?=\w)|-+>|→|\.{3}|^[-\u2013\u2014:]\s"
)
_SIGN = re.compile(
    r"(?:(?<![<>!=+~\s])\s*(?P<sign>[:=]|(?<=['\"]),)\s*|\s*(?P<bar>[|│┃║])\s*|\s+)(?:(?:tensor|array|Array|(?:np|numpy)\.float\d+)\()?$"
)
_REMARK = re.compile(r"\s?[(\[](?:[A-Za-z][\w@-]*|%)[)\]]$")
_ON_SAMPLES = re.compile(
    r"\s(?:on|over|for|in)\s(?:the\s)?(\w+)(?:\s(?:set|dataset|data|split|samples))?$", re.IGNORECASE
)
_COUNTED = frozenset(("epoch", "step", "iter", "iteration", "model", "checkpoint", "run", "round"))
_PROSE = _COUNTED | frozenset(
    (
        *("a", "after", "an", "and", "are", "at", "batch", "by", "debug", "end", "epochs", "finished", "for", "from"),
        *("get", "gives", "got", "has", "have", "in", "info", "is", "it", "now", "of", "on", "our", "reached", "the"),
        *("to", "warning", "was", "we", "with"),
    )
)
_LINKS = ("is", "was", "of")
_MAX_WORDS = 4
_NO_VALUE = re.compile(
    r"[A-Za-z_]|\swas\b|\.\w|-\w|,$|%\||/|\s*(?:-+>|→|=>)|\s?\w+/(?:s|sec|second|it|iter|step|epoch|batch|h)\b"
    r"|\s(?:ms|s|secs?|seconds?|mins?|minutes?|h|hours?|[KMGT]i?B)\b"
)
_PERCENT = re.compile(r" ?%(?!\|)")
_BEST_SO_FAR = re.compile(
    r"(?i)[^(\[*<-]*\b(?:is (?:the |a )?(?:new )?best|best so far|new best|improved)\b"
)  # a sentence; `(best)`, `*best*` and `<- best` stand behind the numbers of any epoch
_NO_OUTPUT = re.compile(
    r"(?i)\b(?:\w*(?:namespace|args|arguments|config)|configuration|hparams|hyper-?param\w*|settings|options)\b"
)


class _Line:
    """The texts of a line, read from left to right.

    `_samples` is the last word by itself that says on which samples what follows was measured. `_is_other`: something
    was said that makes what follows no result, as `Best:`.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._samples = ""
        self._is_other = False

    def numbers(self) -> list[NamedNumber]:
        found = (self._number(at) for at in range(len(self._texts) - 1))
        return [each for each in found if each is not None]

    def _number(self, at: int) -> NamedNumber | None:
        """The number after the text `at`, if that ends in a name."""
        before = self._texts[at]
        sign = _SIGN.search(before)
        field = before if sign is None else before[: sign.start()]
        bare = re.sub(r"['\"`]", "", field)
        name = "" if sign is None else _name_at_end(bare)
        self._see(bare.removesuffix(name), is_first=at == 0)
        if not name or re.search(r"@\s*\[[^]]*$", field):  # `AP @[ IoU=0.50:0.95 ]`
            return None
        return self._judged(name, at)

    def _see(self, lead: str, *, is_first: bool) -> None:
        """Take in what stands before a name, but for what still belongs to the number before.

        Samples are named by words apart: of `Training ended with loss` it is not known.
        """
        *apart, beside = _LIMITS.split(lead)
        for piece in apart[0 if is_first else 1 :]:
            self._take_in(piece)
        if is_first or apart:
            self._take_in(beside, with_samples=False)

    def _take_in(self, words: str, *, with_samples: bool = True) -> None:
        if with_samples and (samples := metric_names.samples_words(words)):
            self._samples = samples[-1]
        is_reserved = any(_said_by(f"{word}_loss") is not Said.RESULT for word in re.findall(r"[^\W\d_]+", words))
        self._is_other |= is_reserved or _NO_OUTPUT.search(words) is not None

    def _judged(self, name: str, at: int) -> NamedNumber | None:
        after = self._texts[at + 1]
        words = _ON_SAMPLES.sub("", _REMARK.sub("", name)).split()
        if words[-1].lower() in _COUNTED:
            self._take_in(name)  # `Best epoch 3: loss 0.31` is the best loss, `Train epoch 3` training
        own = metric_names.samples_words(name)
        if own and (" " in name or own == [name]):
            self._samples = own[-1]
        is_metric = _is_metric(words)
        full = f"{self._samples} {name}" if is_metric and self._samples and not own else name
        is_average = after.strip() == "(" and (self._texts[at + 2 : at + 3] or [""])[0].lstrip().startswith(")")
        is_share = after == "/" and is_metric and metric_names.prefers_larger(name) is True
        is_before_bar = "".join(self._texts[at + 2 : at + 3]).startswith("%|")
        is_index = re.fullmatch(r":\s*", after) is not None and not is_before_bar  # `loss 3: 0.5`
        if is_index or (_NO_VALUE.match(after) and not is_share):
            return None
        said = _said_by(full)
        if said is None or self._is_other or (said is Said.RESULT and not is_metric):
            return None
        names_next = at + 2 < len(self._texts) and re.search(r"\w\W{0,3}$", after) is not None
        if said is Said.RESULT and _BEST_SO_FAR.match(after) and not names_next:
            said = Said.MARKED
        needs_point = said is Said.UNCERTAIN or words[-1].lower() in ("err", "error", "return")
        return NamedNumber(
            full,
            said,
            at + is_average,  # `loss 0.31 (0.29)`: of a batch, and the average so far
            self._expression(full.removesuffix(name).strip(), name, at, is_average=is_average, is_share=is_share),
            of=at + 1 if is_share else None,
            of_batch=at if is_average else None,
            hundred=100.0 if _PERCENT.match(after) else 1.0,
            needs_point=needs_point,
        )

    def _expression(self, samples: str, name: str, at: int, *, is_average: bool, is_share: bool) -> str:
        """An expression for `--scalar` that finds the number, after the word for its samples and its name."""
        before, after = self._texts[at], self._texts[at + 1]
        words = _escaped(before[before.rfind(name.partition(" ")[0]) :])
        group = r"(\d+)/(\d+)" if is_share else _GROUP.replace("]+|", "]+ ?%|") if _PERCENT.match(after) else _GROUP
        return (f"{samples}.*?" if samples else "") + words + (r"\S+\s*\(\s*" if is_average else "") + group


@lru_cache(maxsize=2**10)
def _name_at_end(text: str) -> str:
    """The name with which a text ends, as it stands there; empty for one that ends in other words."""
    text = text.rstrip()
    remark = _REMARK.search(text)
    rest = text if remark is None else text[: remark.start()]
    limits = list(_LIMITS.finditer(rest))
    piece = rest[limits[-1].end() if limits else 0 :]
    on_samples = _ON_SAMPLES.search(piece)
    if on_samples is not None and not metric_names.samples_words(on_samples[1]):
        on_samples = None
    words = (piece if on_samples is None else piece[: on_samples.start()]).split()
    while len(words) > 1 and words[-1].lower() in _LINKS:
        words.pop()  # `loss of 0.31`
    if not words or not re.match(r"[^\W\d]", words[-1]) or (words[-1].lower() in _PROSE - _COUNTED):
        return ""
    first = len(words) - 1
    while first > 0 and len(words) - first < _MAX_WORDS and _is_of_name(words[first - 1]):
        first -= 1
    begin = piece.rfind(words[first]) if first == len(words) - 1 else piece.rfind(" ".join(words[first:]))
    return text[text.rfind(piece[begin:]) :] if begin >= 0 and piece[begin:] else ""


def _is_of_name(word: str) -> bool:
    is_counted = word[-1].isdigit() and not metric_names.may_be_result(word)  # `step12`
    is_word = re.fullmatch(r"(?!.*\d{3})[^\W\d][\w@/&-]*", word) is not None
    return is_word and not is_counted and word.lower() not in _PROSE


def _is_metric(words: Sequence[str]) -> bool:
    """Whether a phrase is about a metric: its last word is one, apart from words of samples and single letters."""
    *earlier, last = words
    if earlier and (metric_names.samples_words(last) == [last] or len(last) == 1):
        return _is_metric(earlier)
    is_one = metric_names.prefers_larger(last) is not None or last.endswith(("_epoch", "_step"))
    return is_one or list(words[-2:]) == ["error", "rate"]


def _escaped(words: str) -> str:
    return re.sub(r"(?:\\?\s)+", r"\\s+", re.escape(words))
