"""Free memory of a machine, and of a container with a limit."""

import resource
from pathlib import Path

import psutil
import pytest

from runmanager.records.host.process import address_space_limit, format_gib, free_memory, is_out_of_memory_error

GIB = 2**30


def cgroup(folder: Path, *, limit: str, used: int, cached: int) -> Path:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon {used - cached}\ninactive_file {cached}\n")
    return folder


def test_container_has_the_rest_of_its_limit_cached_files_included(tmp_path: Path) -> None:
    assert free_memory(cgroup(tmp_path, limit="1000000", used=900_000, cached=300_000)) == 400_000
    assert free_memory(cgroup(tmp_path, limit="1000000", used=2_000_000, cached=0)) == 0


@pytest.mark.parametrize("limit", ["max", "nonsense", str(2**62)])
def test_without_a_limit_the_memory_of_the_machine_counts(tmp_path: Path, limit: str) -> None:
    total = psutil.virtual_memory().total
    assert 0 < free_memory(cgroup(tmp_path, limit=limit, used=0, cached=0)) <= total
    assert 0 < free_memory(tmp_path / "no such folder") <= total


def test_format_gib() -> None:
    assert (format_gib(GIB // 2), format_gib(5000 * GIB)) == ("0.5 GiB", "5,000.0 GiB")
    assert format_gib(10**400 * GIB) == "about 10^400 GiB"


def test_limit_of_the_address_space_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert address_space_limit() == ""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (3 * GIB // 2, resource.RLIM_INFINITY))
    assert address_space_limit() == "address space is limited to 1.5 GiB (ulimit -v)"


def test_errors_that_mean_a_lack_of_memory() -> None:
    assert is_out_of_memory_error(MemoryError())
    assert is_out_of_memory_error(ImportError("libtorch.so: cannot allocate memory in static TLS block"))
    assert not is_out_of_memory_error(ImportError("no module named torch"))
