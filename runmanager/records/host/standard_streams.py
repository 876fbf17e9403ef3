"""Standard streams that never fail a command: open, of any encoding, and told of in one line where they are lost."""

import codecs
import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["StandardOutput", "repaired_streams", "report_lost_output", "show_line"]

_SPELLED = "runmanager.spelled"
_WORDS = {"…": "...", "±": "+-", "✓": "+", "✗": "x", "↻": "~", "━": "=", "╌": "-", "·": "|", "µ": "u", "³": "^3"}
_STRICT = ("strict", "surrogateescape")  # Python's own choices; others are the user's, by PYTHONIOENCODING


def _spelled(error: UnicodeError) -> tuple[str, int]:
    """What stands in place of characters that an encoding lacks; others are written out, as `\\xe9`.

    Where that is longer, it takes the place of blanks that follow, but for one: so columns stay columns.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text, end = error.object, error.end
    lacking = text[error.start : end]
    said = "".join(_WORDS.get(each) or each.encode("ascii", "backslashreplace").decode() for each in lacking)
    blanks = len(text[end:]) - len(text[end:].lstrip(" "))
    return said, end + max(0, min(len(said) - len(lacking), blanks - 1))


codecs.register_error(_SPELLED, _spelled)


def show_line(line: str) -> None:
    """Print a line in a user's program, whose streams are not ours to mend; what cannot be shown is dropped."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    with suppress(OSError, ValueError):  # a reader that has left; a stream that the program has closed
        print(line.encode(encoding, _SPELLED).decode(encoding), flush=True)


def report_lost_output(error: OSError, *, is_sweep: bool) -> None:
    """Say on standard error that standard output was lost: a `sweep` goes on, any other command had nothing else to do.

    That the reader of another command has seen enough (`| head`) is not worth a word.
    """
    said = {errno.EBADF: "is closed", errno.EPIPE: "has lost its reader"}
    what = said.get(error.errno or 0, f"cannot be written ({error.strerror})")
    if is_sweep:
        print(f"warning: Standard output {what}: nothing more is shown; the runs go on.", file=sys.stderr)
    elif error.errno != errno.EPIPE:
        print(f"error: Standard output must take what the command shows, but {what}.", file=sys.stderr)


@dataclass
class StandardOutput:
    """What became of standard output: `lost` is why nothing more was shown from some moment on."""

    lost: OSError | None = None

    @property
    def has_failed(self) -> bool:
        """Whether it was lost otherwise than by a reader that has seen enough, as `head`."""
        return self.lost is not None and self.lost.errno != errno.EPIPE


@contextmanager
def repaired_streams(tell: Callable[[OSError], None] = lambda error: None) -> Iterator[StandardOutput]:
    """Let nothing that is printed meanwhile raise: what an encoding lacks is spelled, what finds no place is dropped.

    A closed standard stream is opened to nothing, or the next file that is opened would be taken for it. `tell` is
    called once, at the first thing that standard output does not take.
    """
    output = StandardOutput()

    def lose(error: OSError) -> None:
        if output.lost is None:
            output.lost = error
            tell(error)

    closed = [number for number in range(3) if _open_to_nothing(number)]
    own = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = _reader(own[0]), _writer(own[1], lose), _writer(own[2], lambda error: None)
    try:
        if 1 in closed:
            lose(OSError(errno.EBADF, "closed"))
        yield output
    finally:
        for mended, earlier in ((sys.stdout, own[1]), (sys.stderr, own[2])):
            if isinstance(mended, _Unfailing) and earlier is not None:
                mended.flush()
                mended.detach()  # the buffer is the earlier one's
        sys.stdout, sys.stderr = own[1] or sys.stdout, own[2] or sys.stderr


def _open_to_nothing(number: int) -> bool:
    """Open a standard stream's file, if it is closed, to what takes and gives nothing; whether it was closed."""
    try:
        os.fstat(number)
        return False
    except OSError:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, number)  # inherited by what this process starts
        if nothing != number:
            os.close(nothing)
        return True


def _reader(stream: Any) -> Any:
    return Path(os.devnull).open(encoding="utf-8") if stream is None else stream


def _writer(stream: Any, lose: Callable[[OSError], None]) -> Any:
    if stream is None:
        return Path(os.devnull).open("w", encoding="utf-8")
    if not isinstance(stream, io.TextIOWrapper):
        return stream  # a notebook's, or a test's: it takes any text
    stream.flush()
    errors = _SPELLED if stream.errors in _STRICT else stream.errors
    mended = _Unfailing(
        stream.buffer,
        encoding=stream.encoding,
        errors=errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
    mended.lose = lose
    return mended


class _Unfailing(io.TextIOWrapper):
    """A stream that is opened to nothing at the first thing that it cannot write."""

    lose: Callable[[OSError], None]

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            self._open_to_nothing(error)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._open_to_nothing(error)

    def _open_to_nothing(self, error: OSError) -> None:
        nothing = os.open(os.devnull, os.O_WRONLY)
        with suppress(OSError):
            os.dup2(nothing, self.fileno())  # or what waits in the buffer would raise at the end of the process
        os.close(nothing)
        self.lose(error)
