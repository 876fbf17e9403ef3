"""The facts of a run's environment, and their changes between runs and attempts: code, machine and versions."""

import contextlib
import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from runmanager.records.files.paths import cache_folder
from runmanager.records.run.run_record import Environment, Measurements, RunRecord
from runmanager.records.settings.secrets import is_secret_variable

MUST_AGREE = ("usable cores", "torch threads", "start method of workers")
"""The facts, besides those of the code, that must agree for two runs to be compared, on whatever machines."""

UNKNOWN_AGREES = ("usable cores", "start method of workers")
"""The facts that agree where one is unknown: older records lack them, and a run without workers has no start method."""

_MAX_NAMED_FILES = 3
_COMMIT_DIGITS = 10


def changed_files(environments: Iterable[Environment]) -> list[str]:
    """Return the source files that some of these runs have in common with different content.

    A file that a run did not use is not a change: another setting may lead to other code.
    """
    digests: dict[str, set[str]] = {}
    for environment in environments:
        for name, digest in (environment.code or {}).items():
            digests.setdefault(name, set()).add(digest)
    return [name for name, found in digests.items() if len(found) > 1]


def changed_code(then: Environment, now: Environment) -> str:
    """Describe the source files and libraries of a run that differ now, so that it would compute something else."""
    if files := changed_files((then, now)):
        return f"its code has changed ({describe_files(files)})"
    changed = [
        f"{name} {then.libraries[name]}, now {version}"
        for name, version in now.libraries.items()
        if then.libraries.get(name, version) != version
    ]
    return f"it was made with {'; '.join(changed)}" if changed else ""


def is_same_code(one: Environment, other: Environment) -> bool | None:
    """Whether two runs with the same settings had the same code; None if unknown.

    Without digests, the same commit without local changes is the same code; another commit may have changed other
    files only.
    """
    if one.code is not None and other.code is not None:
        return not changed_files((one, other))
    is_one_commit = one.commit is not None and one.commit == other.commit
    return True if is_one_commit and False not in (one.commit_clean, other.commit_clean) else None


def describe_files(files: Sequence[str]) -> str:
    """List file names in one line, the first few by name."""
    more = len(files) - _MAX_NAMED_FILES
    return ", ".join(files[:_MAX_NAMED_FILES]) + (f" and {more} more" if more > 0 else "")


def epochs_in_other_environments(record: RunRecord) -> list[range]:
    """Return the epochs that ran on another device or host, or with other threads or versions than the last attempt.

    Their times do not describe the environment in the run's record.
    """
    return [range(first, last + 1) for first, last, _ in _environment_changes(record)]


def sessions_in_other_environments(record: RunRecord) -> set[str]:
    """Return the sessions in which the run took turns in another environment than that of its last attempt."""
    now = record.environment
    return {
        each.session
        for each in record.earlier
        if each.session is not None and each.environment != now and _differences(each.environment, now)
    }


def describe_attempts(record: RunRecord) -> list[str]:
    """Describe the epochs that ran in other environments, one line per range of epochs."""
    lines = []
    for first, last, facts in _environment_changes(record):
        which = f"epoch {first} was" if first == last else f"epochs {first} to {last} were"
        counts = "it counts" if first == last else "they count"
        lines.append(f"{which} made in another environment ({facts}); {counts} as warm-up")
    return lines


def _environment_changes(record: RunRecord) -> list[tuple[int, int, str]]:
    """Return the first and last epoch of each range that ran in another environment, and what differed."""
    if not record.earlier:
        return []
    changes: list[tuple[int, int, str]] = []
    first = 1
    for each in record.earlier:
        facts = _differences(each.environment, record.environment)
        if files := changed_files((each.environment, record.environment)):
            facts = "; ".join(filter(None, [facts, f"code changed ({describe_files(files)})"]))
        if facts and first <= each.last_epoch:
            if changes and changes[-1][1:] == (first - 1, facts):
                changes[-1] = (changes[-1][0], each.last_epoch, facts)
            else:
                changes.append((first, each.last_epoch, facts))
        first = max(first, each.last_epoch + 1)
    return changes


def facts_of(environment: Environment, measurements: Measurements | None = None) -> dict[str, Any]:
    """Return the facts that decide how fast the same code is on the same data, or which code it is; None if unknown.

    Those that only measurements tell are left out without them. Further names are those of the libraries.
    """
    facts = {
        "host": environment.host or None,
        "CPU model": environment.cpu_model,
        "device": environment.device_name,
        "usable cores": environment.usable_cores and f"{environment.usable_cores:g}",
        "torch threads": environment.torch_threads,
        "driver": environment.driver,
        "CUDA": environment.cuda,
        "cuDNN": environment.cudnn,
        "cuDNN benchmark": environment.cudnn_benchmark,
        "cuDNN deterministic": environment.cudnn_deterministic,
        "TF32 in products": environment.tf32_matmul,
        "TF32 in cuDNN": environment.tf32_cudnn,
        "python": environment.python or None,
        "commit": environment.commit and environment.commit[:_COMMIT_DIGITS],
        **environment.libraries,
    }
    return facts if measurements is None else facts | {"start method of workers": measurements.worker_start_method}


def _differences(then: Environment, now: Environment) -> str:
    earlier, later = facts_of(then), facts_of(now)
    return "; ".join(
        f"{name} {_or_unknown(earlier.get(name))}, now {_or_unknown(later.get(name))}"
        for name in dict.fromkeys([*earlier, *later])
        if earlier.get(name) != later.get(name)
        and not (name in UNKNOWN_AGREES and None in (earlier.get(name), later.get(name)))
    )


def _or_unknown(value: Any) -> str:
    return "unknown" if value is None else str(value)


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
