"""What the drivers of a sweep say while they are at work (messages.jsonl), so that every reader can tell it too."""

import contextlib
import datetime
import os
from typing import Annotated

import msgspec

from runmanager.records.files.atomic_files import whole_lines
from runmanager.records.files.file_errors import UNREADABLE
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.settings.secrets import redacted
from runmanager.text import encodable

__all__ = ["Message", "Messages", "read_messages"]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence of a driver, and when it said it.

    `retried` is the folder of a run that is tried again, if the sentence tells its last end.
    """

    line: str
    at: Annotated[datetime.datetime, msgspec.Meta(tz=True)]
    driver: ProcessIdentity
    retried: str = ""


_DECODER = msgspec.json.Decoder(Message)
_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # no link, no pipe


class Messages:
    """Appends what this process says. On a full disk a sentence is kept, and written with the next one."""

    def __init__(self, sweep: SweepPaths) -> None:
        self._path = sweep.messages
        self._driver = ProcessIdentity.current()
        self._unwritten = b""

    def say(self, line: str, *, retried: str = "") -> None:
        """Append a sentence; never raises."""
        now = datetime.datetime.now(datetime.UTC)
        message = Message(line=encodable(redacted(line)), at=now, driver=self._driver, retried=retried)
        self._unwritten += b"\n" + msgspec.json.encode(message) + b"\n"  # what is torn before costs itself alone
        with contextlib.suppress(OSError):
            handle = os.open(self._path, _APPENDING, 0o666)
            try:
                self._unwritten = self._unwritten[os.write(handle, self._unwritten) :]
            finally:
                os.close(handle)


def read_messages(sweep: SweepPaths) -> list[Message]:
    """Return what was said, in order, without what cannot be read."""
    messages = []
    with contextlib.suppress(*UNREADABLE):
        for line in filter(None, whole_lines(sweep.messages).split(b"\n")):
            with contextlib.suppress(*UNREADABLE):
                messages.append(_DECODER.decode(line))
    return messages
