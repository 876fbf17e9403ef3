"""Text that a terminal may be shown: what would steer the terminal is written out, and steers nothing."""

import re

__all__ = ["printable"]

# Control characters but for tab and line feed; the marks that turn the direction of writing, by which a text can look
# like another; halves of a character, as of a name that is no UTF-8, which no terminal can be sent.
_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""The text with each such character as its escape in Python, as `\x1b`; `\r\n` is the end of a line."""
    return _STEERING.sub(_escape, text.replace("\r\n", "\n"))


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode()
