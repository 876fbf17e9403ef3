"""Environment variables in records: a value as it is, a secret by a digest that shows only whether it changed."""

from pathlib import Path

import pytest

from runmanager.records.run.environment_changes import is_digest, recorded_variables


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, which does not exist yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not" / "yet"))
    monkeypatch.setenv("OWN_DATA", "/data")
    monkeypatch.setenv("OWN_TOKEN", "hunter2")
    monkeypatch.delenv("OWN_MISSING", raising=False)
    return tmp_path / "not" / "yet" / "runmanager"


def digest() -> str:
    return recorded_variables(["OWN_TOKEN"])["OWN_TOKEN"]


def test_values_are_recorded_as_they_are_and_need_no_key(cache: Path) -> None:
    assert recorded_variables(["OWN_DATA", "OWN_MISSING"]) == {"OWN_DATA": "/data"}
    assert not is_digest("/data") and not cache.exists()


def test_a_secret_is_recorded_by_a_digest_that_changes_with_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = digest()
    prefix, _, digits = first.partition(":")
    assert prefix == "digest" and len(digits) == 16 and int(digits, 16) >= 0
    assert is_digest(first) and "hunter2" not in first
    assert digest() == first, "of the same key"
    monkeypatch.setenv("OWN_TOKEN", "hunter3")
    assert digest() != first


def test_the_key_is_the_users_alone_and_nothing_else_is_left(cache: Path) -> None:
    first = digest()
    assert [path.name for path in cache.iterdir()] == ["secrets.key"]
    key = cache / "secrets.key"
    assert len(key.read_bytes()) == 32 and key.stat().st_mode & 0o777 == 0o600
    key.write_bytes(b"k" * 32)
    assert digest() != first, "records of two users do not compare"


def test_without_a_place_for_the_key_secrets_are_digests_still(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "not").touch()
    assert is_digest(digest()) and digest() != digest()
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert is_digest(digest()) and digest() != digest()
