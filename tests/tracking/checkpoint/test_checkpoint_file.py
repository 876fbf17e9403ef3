"""Tests of checkpoints whose numbers ask for more memory than their file has bytes."""

import os
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from runmanager.tracking.checkpoint.checkpoint_file import CheckpointError, read_state, write_state

TERA = 10**12


def repacked(path: Path, change: Callable[[str, bytes], bytes], compression: int = zipfile.ZIP_STORED) -> None:
    """Write a checkpoint again with changed entries."""
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in entries.items():
            archive.writestr(name, change(name, data))


def of_pickle(change: Callable[[bytes], bytes]) -> Callable[[str, bytes], bytes]:
    return lambda name, data: change(data) if name.endswith("data.pkl") else data


class _Calls:
    """Pickled as a call of a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def a_longer_storage(path: Path) -> None:
    """The storage of 7 numbers, in its pickle a byte, becomes one of 2**31 - 1."""
    repacked(
        path,
        of_pickle(
            lambda data: data.replace(b"cpuq\x0cK\x07t", b"cpuq\x0cJ\xff\xff\xff\x7ft").replace(
                b"K\x07tq", b"J\xff\xff\xff\x7ftq"
            )
        ),
    )


def a_repeated_number(path: Path) -> None:
    write_state(path, {"model": torch.zeros(1).expand(TERA)})


def an_allocation(path: Path) -> None:
    write_state(path, {"model": _Calls(bytearray, TERA)})


def a_compressed_entry(path: Path) -> None:
    write_state(path, {"model": torch.zeros(10**6)})
    repacked(path, lambda _, data: data, zipfile.ZIP_DEFLATED)


def code_that_runs(path: Path) -> None:
    write_state(path, {"model": _Calls(os.system, "touch ran")})


def the_format_of_before(path: Path) -> None:
    torch.save({"version": 1}, path, _use_new_zipfile_serialization=False)


def no_zip_at_all(path: Path) -> None:
    path.write_bytes(os.urandom(200))


def a_link(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


@pytest.mark.parametrize(
    ("craft", "why"),
    [
        (a_longer_storage, r"is damaged \(ValueError\)"),
        (a_repeated_number, r"is damaged \(ValueError\)"),
        (an_allocation, r"is damaged \(ValueError\)"),
        (a_compressed_entry, r"is damaged \(ValueError\)"),
        (code_that_runs, r"is damaged \(UnpicklingError\)"),
        (the_format_of_before, r"is damaged \(BadZipFile\)"),
        (no_zip_at_all, r"is damaged \(BadZipFile\)"),
        (a_link, "must be a regular file, got a link"),
    ],
)
def test_a_crafted_checkpoint_is_refused_in_one_line_and_takes_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, craft: Callable[[Path], None], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "checkpoint.pt"
    write_state(path, {"model": torch.arange(7.0)})
    whole = path.read_bytes()
    craft(path)
    assert path.is_symlink() or path.read_bytes() != whole
    with pytest.raises(CheckpointError, match=why) as error:
        read_state(path)
    assert "\n" not in str(error.value) and not (tmp_path / "ran").exists()


def test_what_a_checkpoint_may_hold_is_read(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    shared = torch.arange(6, dtype=torch.float64)
    model = OrderedDict(a=torch.nn.Parameter(torch.ones(2, 3)), b=shared[2:], c=shared.view(2, 3).t())
    more = {
        "h": torch.ones(3, dtype=torch.bfloat16),
        "e": torch.ones(1).expand(1000),
        "i": torch.empty(0, dtype=torch.int8),
    }
    write_state(
        path, {"model": model, **more, "plain": [1, "x", None, {2.5, True}, b"1", (3,)], "z": torch.ones(2) * 1j}
    )
    state = read_state(path)
    assert torch.equal(state["model"]["c"], model["c"]) and state["model"]["a"].requires_grad
    assert state["e"].shape == (1000,) and state["plain"][3] == {2.5, True} and state["z"].dtype == torch.complex64
