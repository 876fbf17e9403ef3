"""Standard streams whose failure never fails a command: closed, full, without reader, or of a narrow encoding."""

import codecs
import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from runmanager.text import fitted, printable

_SPELL_OUT = "runmanager.spell_out"
_SPELLINGS = {"…": "...", "±": "+-", "✓": "+", "✗": "x", "↻": "~", "━": "=", "╸": "=", "╌": "-", "·": "|", "µ": "u"}
_SPELLINGS |= {"³": "^3"}
_STRICT = ("strict", "surrogateescape")  # Python's defaults; others were set by PYTHONIOENCODING


def _spell_out(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that an encoding lacks by ASCII, or by their escapes, like `\\xe9` (codec error handler).

    A longer replacement takes the place of the blanks that follow, but for one, so that columns stay aligned.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text, end = error.object, error.end
    lacking = text[error.start : end]
    spelled = "".join(_SPELLINGS.get(each) or each.encode("ascii", "backslashreplace").decode() for each in lacking)
    blanks = len(text[end:]) - len(text[end:].lstrip(" "))
    return spelled, end + max(0, min(len(spelled) - len(lacking), blanks - 1))


codecs.register_error(_SPELL_OUT, _spell_out)


def show_line(line: str) -> None:
    """Print a line in a user's program, whose streams are left as they are; output that fails is dropped."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    with suppress(OSError, ValueError):  # the reader has left, or the program has closed the stream
        print(printable(line).encode(encoding, _SPELL_OUT).decode(encoding), flush=True)


def print_line(line: str, stream: TextIO | None = None) -> None:
    """Print a line to a stream, by default stdout: what a terminal would obey made visible, wrapped at its width."""
    target = stream or sys.stdout
    print(fitted(printable(line), target), file=target, flush=True)


def report_lost_output(error: OSError, *, is_sweep: bool) -> None:
    """Report on standard error that standard output was lost: a warning for a sweep, which continues, else an error.

    Other commands report nothing when their reader has closed the pipe (`| head`).
    """
    causes = {errno.EBADF: "is closed", errno.EPIPE: "has lost its reader"}
    what = causes.get(error.errno or 0, f"cannot be written ({error.strerror})")
    if is_sweep:
        print(f"warning: Standard output {what}: nothing more is shown; the runs continue.", file=sys.stderr)
    elif error.errno != errno.EPIPE:
        print(f"error: Standard output must take what the command shows, but {what}.", file=sys.stderr)


@dataclass
class StandardOutput:
    """State of standard output; `lost` is the error since which nothing more has been shown."""

    lost: OSError | None = None

    @property
    def has_failed(self) -> bool:
        """Whether it was lost for another reason than that the reader has closed the pipe, as `head` does."""
        return self.lost is not None and self.lost.errno != errno.EPIPE


@contextmanager
def repaired_streams(on_lost: Callable[[OSError], None] = lambda error: None) -> Iterator[StandardOutput]:
    """Keep printing from raising: characters that the encoding lacks are spelled out, failed output is dropped.

    A closed standard stream is opened to /dev/null, or the next file that is opened would become that stream.
    `on_lost` is called once, at the first output that standard output does not take.
    """
    output = StandardOutput()

    def lose(error: OSError) -> None:
        if output.lost is None:
            output.lost = error
            on_lost(error)

    closed = [number for number in range(3) if _open_to_null(number)]
    original = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = (
        _reader(original[0]),
        _writer(original[1], lose),
        _writer(original[2], lambda error: None),
    )
    try:
        if 1 in closed:
            lose(OSError(errno.EBADF, "closed"))
        yield output
    finally:
        for repaired, earlier in ((sys.stdout, original[1]), (sys.stderr, original[2])):
            if isinstance(repaired, _SafeWriter) and earlier is not None:
                repaired.flush()
                repaired.detach()  # the buffer belongs to the original stream
        sys.stdout, sys.stderr = original[1] or sys.stdout, original[2] or sys.stderr


def _open_to_null(number: int) -> bool:
    """Open a standard stream to /dev/null if it is closed. Return whether it was closed."""
    try:
        os.fstat(number)
        return False
    except OSError:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, number)  # inherited by child processes
        if null != number:
            os.close(null)
        return True


def _reader(stream: Any) -> Any:
    return Path(os.devnull).open(encoding="utf-8") if stream is None else stream


def _writer(stream: Any, lose: Callable[[OSError], None]) -> Any:
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    if not isinstance(stream, io.TextIOWrapper):
        return stream  # a notebook's or a test's stream, which takes any text
    stream.flush()
    errors = _SPELL_OUT if stream.errors in _STRICT else stream.errors
    repaired = _SafeWriter(
        stream.buffer,
        encoding=stream.encoding,
        errors=errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
    repaired.lose = lose
    return repaired


class _SafeWriter(io.TextIOWrapper):
    """A text stream that is redirected to /dev/null at the first failed write."""

    lose: Callable[[OSError], None]

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._discard_output(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._discard_output(error)

    def _discard_output(self, error: OSError) -> None:
        null = os.open(os.devnull, os.O_WRONLY)
        with suppress(OSError):
            os.dup2(null, self.fileno())  # otherwise the buffer would raise at the end of the process
        os.close(null)
        self.lose(error)
