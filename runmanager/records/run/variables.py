"""Environment variables that a configuration reads, as records hold them: a secret by a keyed digest only."""

import contextlib
import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from runmanager.records.files.paths import cache_folder
from runmanager.records.settings.secrets import is_secret_variable

__all__ = ["is_digest", "recorded_variables"]

_DIGEST = "digest:"
_KEY_BYTES = 32
_NUM_DIGITS = 16


def recorded_variables(names: Iterable[str]) -> dict[str, str]:
    """Return the values of the environment variables that are set; of a secret, judged by its name, a keyed digest.

    The key is a file of the user's cache that only the user may read: records of two users do not compare.
    """
    values = {name: os.environ[name] for name in names if name in os.environ}
    key = _key() if any(map(is_secret_variable, values)) else b""
    return {name: _digest(value, key) if is_secret_variable(name) else value for name, value in values.items()}


def is_digest(recorded: str) -> bool:
    """Whether a recorded value stands for a secret."""
    return recorded.startswith(_DIGEST)


def _digest(value: str, key: bytes) -> str:
    return _DIGEST + hmac.new(key, value.encode(errors="surrogateescape"), hashlib.sha256).hexdigest()[:_NUM_DIGITS]


def _key() -> bytes:
    """Return the user's key, made on first use; one of this process alone where it cannot be kept."""
    folder = cache_folder()
    if folder is None:
        return secrets.token_bytes(_KEY_BYTES)
    path = folder / "secrets.key"
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            _create(path)
        return path.read_bytes()
    return secrets.token_bytes(_KEY_BYTES)


def _create(path: Path) -> None:
    """Create the file with its key in it, in one step."""
    prepared = path.with_suffix(f".{os.getpid()}")
    handle = os.open(prepared, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(handle, secrets.token_bytes(_KEY_BYTES))
        os.link(prepared, path)
    finally:
        os.close(handle)
        prepared.unlink()
