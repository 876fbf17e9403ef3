"""The parts of configurations that are equal in many runs, decoded once and shared by those who read them all."""

from typing import Any

import msgspec

from runmanager.records.run import RunRecord

__all__ = ["PARTLY_DECODER", "PartlyDecoded", "SharedParts"]


class PartlyDecoded(RunRecord, frozen=True, kw_only=True, gc=False):
    """A record as its file has it, the parts of its configuration still as text."""

    config: dict[str, msgspec.Raw]


PARTLY_DECODER = msgspec.json.Decoder(PartlyDecoded)


class SharedParts:
    """What has been decoded of `model`, `optimizer`, …: nobody may change it.

    Ten thousand runs then take the memory of their differences, and less of the time that decoding takes.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, Any] = {}

    def whole(self, record: PartlyDecoded) -> RunRecord:
        """The record with its configuration. Raises `msgspec.MsgspecError`."""
        config = {name: self._decoded(bytes(part)) for name, part in record.config.items()}
        return RunRecord(**{**msgspec.structs.asdict(record), "config": config})

    def _decoded(self, text: bytes) -> Any:
        if text not in self._known:
            self._known[text] = msgspec.json.decode(text)
        return self._known[text]
