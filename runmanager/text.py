"""Text for people: values and commands as they are typed, bounded lines, nothing that a terminal or shell obeys."""

import json
import re
import shutil
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, TextIO


def format_value(value: Any) -> str:
    """Format a setting's value as on the command line: `null`, `true`, `false`, and lists and mappings as JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


def pluralize(count: int, one: str, several: str | None = None) -> str:
    """Format a count with its noun: `1 run`, `1,200 runs`; `pluralize(2, "run was", "runs were")` for other plurals."""
    return f"{count:,} {one if count == 1 else several or f'{one}s'}"


_APPLICATION = ("python", "-m", "runmanager")
_OF_GRIDS, _OF_RUNS = ("-m", "--multirun"), ("-r", "--run")
_DEMO = ("experiment=digits_quick", "name=", "output_root=", "--yes")
_SIDES = "hydra.sweeper.sides="
_OF_DUELS = ("measure=paired", "output_root=outputs", "epochs=1")


def full_command(stored: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a stored command as they were typed: `sys.argv` lacks the `python` before a script."""
    program = ("python",) if stored and stored[0].endswith(".py") else ()
    return (*program, *stored)


def shell_command(stored: Sequence[str]) -> str:
    """Format a stored command as it is typed into a shell.

    The built-in job is recorded as its Hydra application, `python -m runmanager`, and typed as `runmanager sweep`,
    `runmanager run`, `runmanager demo` or `runmanager duel`. Without settings the first two only print their help.
    """
    words = stored[len(_APPLICATION) :]
    settings = [word for word in words if word not in (*_OF_GRIDS, *_OF_RUNS)]
    if tuple(stored[: len(_APPLICATION)]) != _APPLICATION or not settings:
        is_assignment = bool(stored) and "=" in stored[0]  # to a shell, unless its name is quoted
        return ("''" if is_assignment else "") + shell_join(full_command(stored))
    return shell_join(["runmanager", *(_as_demo(settings) or _as_duel(settings) or _as_sweep(words, settings))])


def _as_sweep(words: Sequence[str], settings: Sequence[str]) -> list[str]:
    return ["sweep" if any(word in _OF_GRIDS for word in words) else "run", *settings]


def _as_demo(settings: Sequence[str]) -> list[str]:
    """The words of a demo, which begin as this command makes them; empty for any other."""
    if len(settings) < len(_DEMO) or not all(map(str.startswith, settings, _DEMO)):
        return []
    return ["demo", *(word for word in (*settings[1:3], *settings[4:]) if word != "output_root=outputs")]


def _as_duel(settings: Sequence[str]) -> list[str]:
    """The words of a duel without what this command adds: the two sides, then what both have; empty for no duel."""
    quoted = next((word.removeprefix(_SIDES) for word in settings if word.startswith(_SIDES)), "")
    sides = [re.sub(r"\\(.)", r"\1", side) for side in re.findall(r'"((?:[^"\\]|\\.)*)"', quoted)]
    others = [word for word in settings if word not in _OF_DUELS and not word.startswith(_SIDES)]
    return ["duel", *sides, *others] if sides else []


_BARE_WORD = re.compile(r"(?!=|%|.*[=:]=)[A-Za-z0-9_@%+=:,./-]+", re.ASCII)


def shell_join(words: Sequence[str]) -> str:
    """Format words as one line that bash and zsh read as exactly these, in a script and typed."""
    return " ".join(map(shell_quote, words))


def shell_quote(word: str) -> str:
    r"""Quote a word for any shell, as in `=ls`, which zsh would look up; characters without a glyph as in `$'\n'`.

    The last is for bash and zsh. The quoted word has printable characters only, so that `printable` leaves a command as
    it is.
    """
    if _BARE_WORD.fullmatch(word):
        return word
    if printable_line(word) == word:
        if "'" in word and _OBEYED_IN_QUOTES.isdisjoint(word):
            return f'"{word}"'
        return "'" + word.replace("'", "'\"'\"'") + "'"
    return "$'" + "".join(_ESCAPES.get(each) or _as_bytes(each, shown) for each, shown in _shown(word)) + "'"


_OBEYED_IN_QUOTES = frozenset('$`"\\!')  # in double ones
# An interactive bash looks for `!` in these quotes, though not in plain ones.
_ESCAPES = {"\\": r"\\", "'": r"\'", "!": r"\x21", "\n": r"\n", "\t": r"\t", "\r": r"\r"}


def _as_bytes(character: str, shown: str) -> str:
    if character == shown:
        return character
    errors = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors=errors))


CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
"""Code in a line of Markdown, as `in_backticks` writes it: the fence, and what it holds."""


def in_backticks(text: str) -> str:
    """Quote text as Markdown code: between more backticks than it has in a row itself."""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    apart = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{apart}{text}{apart}{fence}"


def wrapped(text: str, width: int) -> str:
    """Break a text into lines of `width` at spaces, and nowhere in a command between backticks, so it can be copied."""
    commands = CODE_SPAN.sub(lambda found: found[0].replace(" ", _NO_BREAK), text)
    parts = (
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False, subsequent_indent=_indent(line))
        for line in commands.split("\n")
    )
    return "\n".join(parts).replace(_NO_BREAK, " ")


def fitted(text: str, stream: TextIO | None, *, indent: int = 0) -> str:
    """Break a text into lines as wide as the terminal that `stream` is, less an `indent`; unchanged in a pipe."""
    if stream is None or not stream.isatty():
        return text
    return wrapped(text, max(shutil.get_terminal_size().columns - indent, _MIN_WIDTH))


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" "))]


_MIN_WIDTH = 20
_NO_BREAK = "\x00"  # stands for a space; no printable text contains it

_CONTROL = r"\x00-\x08\x0b-\x1f\x7f"
_SUSPECT = re.compile(rf"[{_CONTROL}]|[^\x00-\x7f]+")
_SUSPECT_IN_LINE = re.compile(rf"[{_CONTROL}\t\n]|[^\x00-\x7f]+")
# Letters, marks and symbols that show nothing; all else without a glyph is what `str.isprintable` calls so.
_WITHOUT_GLYPH = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_EMOJI_SELECTOR = "\ufe0f"
_MAX_MARKS = 4  # on a letter: more than any language needs would run into the lines above and below


def printable(text: str) -> str:
    r"""Replace what a terminal would obey or not show by Python's escapes, like `\x1b`; line breaks and tabs stay.

    These are control and format characters (also those that change the direction of text), private and unassigned
    ones, spaces but for the common one, and marks that stand on no letter. `\r\n` becomes `\n`.
    """
    return _SUSPECT.sub(_replaced, text.replace("\r\n", "\n"))


def printable_line(text: str) -> str:
    r"""Replace the same and line breaks and tabs, for a text in one line, such as a value."""
    return _SUSPECT_IN_LINE.sub(_replaced, text)


def printable_value(value: Any) -> str:
    """Return a setting's value as on the command line, in one line of at most `MAX_LINE` characters."""
    return truncated(printable_line(format_value(value)))


def text_width(text: str) -> int:
    """Return how many columns of a terminal a printable line takes: letters of East Asia take two, marks none."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else _category(each) not in "MV" for each in text)


def padded(text: str, width: int) -> str:
    """Fill a printable line with spaces up to a `width` of terminal columns."""
    return text + " " * (width - text_width(text))


def printable_json(text: str) -> str:
    r"""Replace the same in JSON by JSON's own escapes, like `\u009b`, which read back as the same text."""
    return _SUSPECT.sub(lambda found: json.dumps(found[0])[1:-1] if _replaced(found) != found[0] else found[0], text)


def _replaced(found: re.Match[str]) -> str:
    return _shown_after(found.string[max(found.start() - 1, 0) : found.start()], found[0])


@lru_cache(maxsize=1024)  # a table has few of them, such as ±
def _shown_after(before: str, text: str) -> str:
    return "".join(shown for _, shown in _shown(text, before))


def _shown(text: str, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield each character with what is shown of it, in a text after the character `before`."""
    category = "L" if before.isalnum() else ""
    for each in text:
        earlier, category = category, _category(each)
        if category == "M":
            category = f"{earlier}M"  # of a letter with so many marks
            is_shown = earlier[:1] in ("L", "N") and len(earlier) <= _MAX_MARKS and each not in _WITHOUT_GLYPH
        elif category == "V":
            is_shown = earlier == "S" and each == _EMOJI_SELECTOR
        else:
            is_shown = each.isprintable() and each not in _WITHOUT_GLYPH
        category = category if is_shown else ""
        yield each, each if is_shown else each.encode("unicode_escape", "surrogatepass").decode()


def _category(character: str) -> str:
    """`L`etter, `M`ark, `N`umber, `S`ymbol or another of Unicode's categories; `V` for selectors of variants."""
    return "V" if _SELECTORS.match(character) else unicodedata.category(character)[0]


def hidden_character(text: str) -> str:
    """Name the first character that is not to be seen or ends a line, and its place; empty without one."""
    for place, character in enumerate(text, start=1):
        if not character.isprintable():
            name = unicodedata.name(character, "")
            return f"U+{ord(character):04X}{name and f' ({name})'} as character {place}"
    return ""


MAX_LINE = 1000
"""Maximum length of a line in a record, in characters."""


def truncated(line: str) -> str:
    """Cut a line to `MAX_LINE` characters; an error message that quotes its data may be far longer."""
    if len(line) <= MAX_LINE:
        return line
    tail = f"… (cut: {len(line):,} characters)"
    return line[: MAX_LINE - len(tail)] + tail


def encodable(text: str) -> str:
    """Escape what UTF-8 cannot encode: Python's names of files that are not UTF-8 have lone surrogates."""
    return text.encode(errors="backslashreplace").decode()


def first_line(text: str) -> str:
    """Return the first line that is not blank, stripped; empty if there is none."""
    return next((line.strip() for line in encodable(text).splitlines() if line.strip()), "")


def error_line(error: BaseException) -> str:
    """Format an exception in one line, of any length: `ValueError: lr must be above 0`; the type alone if empty."""
    message = _message(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def message_line(error: BaseException) -> str:
    """Format the message of an exception in one line, of any length; its type if it has none."""
    return _message(error) or type(error).__name__


def _message(error: BaseException) -> str:
    return first_line(full_message(error))


def full_message(error: BaseException) -> str:
    """Return the message of an exception, of any number of lines; empty if a custom `__str__` fails."""
    try:
        return str(error)
    except Exception:
        return ""
