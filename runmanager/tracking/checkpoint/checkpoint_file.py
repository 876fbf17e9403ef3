"""The files checkpoint.pt and best.pt: written atomically, and read without running the code in them.

Drivers of other programs import this module, so torch, whose import takes seconds, is imported on first use.
"""

from pathlib import Path
from typing import Any

from runmanager.errors import RecordError
from runmanager.records.files.atomic_files import replacement

VERSION = 1


class CheckpointError(RecordError):
    """A checkpoint that cannot be loaded; `reason` completes a sentence that begins with its name."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} {reason}; run it again.")
        self.reason = reason


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Replace the file by `state` and the version of its format."""
    import torch

    with replacement(path) as file:
        torch.save(state | {"version": VERSION}, file)


def read_state(path: Path) -> dict[str, Any]:
    """Read a checkpoint or best.pt to the CPU, restricted to weights and plain values.

    Raises `CheckpointError` for a damaged file, one of another version, one whose numbers ask for more memory than its
    bytes, and a link.
    """
    import torch

    from runmanager.tracking.checkpoint.declared_sizes import require_bounded, require_stored

    if path.is_symlink():
        raise CheckpointError(path, "must be a regular file, got a link, which is not followed")
    try:
        require_stored(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
        require_bounded(state, path)
    except Exception as error:  # pickle, zip and torch raise different errors
        # Their messages are not shown, because torch's suggests loading the file in a way that runs the code in it.
        raise CheckpointError(path, f"is damaged ({type(error).__name__})") from error
    version = state.get("version") if isinstance(state, dict) else None
    if version != VERSION:
        raise CheckpointError(path, f"must be a checkpoint of version {VERSION}, got {version}")
    assert isinstance(state, dict)
    return state
