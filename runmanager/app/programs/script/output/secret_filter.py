"""A script's output without the secrets that its command gives it."""

from collections.abc import Iterable

from runmanager.records.settings.secrets import MASK

__all__ = ["SecretFilter"]


class SecretFilter:
    """Masks `secrets` in a stream of bytes; of one that has only begun, the bytes are held back until more follow."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = [secret.encode(errors="surrogateescape") for secret in secrets]
        self._held = b""

    def take(self, data: bytes) -> bytes:
        """Return what can be written of the stream now."""
        data = self._held + data
        for secret in self._secrets:
            data = data.replace(secret, MASK.encode())
        end = len(data) - max((_begun(data, secret) for secret in self._secrets), default=0)
        self._held = data[end:]
        return data[:end]

    def rest(self) -> bytes:
        """Return what was held back: the stream has ended."""
        held, self._held = self._held, b""
        return held


def _begun(data: bytes, secret: bytes) -> int:
    """Return how many of the last bytes are the beginning of `secret`."""
    return next((size for size in range(min(len(secret) - 1, len(data)), 0, -1) if data.endswith(secret[:size])), 0)
