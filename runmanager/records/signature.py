"""The identity of a cell: a hash of everything that it was asked to do."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["UNSIGNED", "short_signature", "signature"]

UNSIGNED = frozenset(
    {"name", "output_root", "data_root", "resume", "rerun_changed", "checkpoint", "log_every", "hydra"}
)
"""Top-level settings that say where and how a run is kept, not what it computes: left out of the signature."""


def signature(config: Mapping[str, Any]) -> str:
    """SHA-256, as 64 hex digits, of the resolved configuration without the `UNSIGNED` settings.

    The order of keys does not matter. Everything else does, defaults too: a default that changes later then changes
    no old identity.
    """
    signed = {key: value for key, value in config.items() if key not in UNSIGNED}
    text = json.dumps(signed, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def short_signature(full: str) -> str:
    """The eight hex digits that end a run folder's name."""
    return full[:8]
