"""Several ranks of one program, as torchrun starts them: all are refused, and nothing is written."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.testing._internal.distributed.fake_pg import FakeStore

from runmanager import RunManager
from runmanager.errors import UsageError
from runmanager.tracking.environment.cell_process import is_apart, rank_of_process, refuse_several_ranks

ALL_ENTRY_POINTS = """
import sys

from runmanager import RunManager, run_sweep
from runmanager.errors import UsageError

for attempt in (lambda: RunManager(), lambda: RunManager("outputs/mine"), lambda: run_sweep("epochs=1", name="mine")):
    try:
        attempt()
    except UsageError as error:
        sys.stdout.write(f"refused: {error}\\n")  # in one piece: the ranks share the stream
"""


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return {**os.environ}


def test_the_library_refuses_every_rank_of_torchrun(tmp_path: Path, environment: dict[str, str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(ALL_ENTRY_POINTS)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0"]
    done = subprocess.run(
        [*torchrun, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    refused = [line for line in done.stdout.splitlines() if line.startswith("refused: ")]
    assert len(refused) == 6 and set(refused) == {
        "refused: A run must have one rank, got WORLD_SIZE=2: this process is one of several that a launcher has "
        "started, as torchrun and Lightning do, and nothing was written; start it once, or unset WORLD_SIZE. Ranks are "
        "for `start_run`, and for the cells of `runmanager sweep --processes`."
    }
    assert list(tmp_path.iterdir()) == [script]


def test_each_rank_of_a_command_prints_the_error_and_exits_with_2(tmp_path: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "runmanager", "-m", "lr=0.1,0.01", "epochs=1", "name=first"]
    ranks = [
        subprocess.Popen(
            command,
            cwd=tmp_path,
            env={**environment, "WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    for rank in ranks:
        out, error = rank.communicate(timeout=120)
        assert (rank.returncode, out) == (2, "")
        assert error.startswith("error: A run must have one rank, got WORLD_SIZE=2") and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [None, "", "1", "0", "many"])
def test_independent_tasks_do_not_count_as_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str | None
) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if size is not None:
        monkeypatch.setenv("WORLD_SIZE", size)
    RunManager(tmp_path / "sweep")


@pytest.fixture
def process_group() -> Iterator[None]:
    torch.distributed.init_process_group("fake", rank=1, world_size=2, store=FakeStore())
    yield
    torch.distributed.destroy_process_group()


def test_ranks_without_a_variable_are_found_by_their_process_group(process_group: None) -> None:
    with pytest.raises(UsageError, match="got WORLD_SIZE=2"):
        refuse_several_ranks()


def test_a_manager_created_before_the_ranks_starts_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = RunManager(tmp_path / "sweep")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="got WORLD_SIZE=2"):
        manager.run({"lr": 1})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("variables", "in_cell", "rank"),
    [
        ({}, True, (0, 1)),
        ({"RANK": "1"}, True, (0, 1)),
        ({"RANK": "1", "WORLD_SIZE": "1"}, True, (0, 1)),
        ({"RANK": "1", "WORLD_SIZE": "4"}, False, (1, 4)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}, False, (2, 3)),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "3"}, False, (0, 1)),  # tasks by themselves may be independent
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "3"}, True, (2, 3)),
    ],
)
def test_the_rank_of_a_process(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], in_cell: bool, rank: tuple[int, int]
) -> None:
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert rank_of_process(in_cell=in_cell) == rank


@pytest.mark.parametrize(
    ("variables", "apart"),
    [
        ({}, False),
        ({"LOCAL_RANK": "0", "WORLD_SIZE": "2"}, False),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, True),  # as Lightning starts it beside rank 0, which had no variable
        ({"LOCAL_RANK": "1", "RANK": "1", "WORLD_SIZE": "2"}, False),
        ({"LOCAL_RANK": "1", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, False),
    ],
)
def test_a_local_rank_alone_is_none_that_rank_0_knows_of(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], apart: bool
) -> None:
    for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_apart() is apart


def test_a_process_group_knows_every_rank(process_group: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert not is_apart()


def test_ranks_of_the_cell_around_are_not_those_of_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError):
        refuse_several_ranks(of_sweep=True)
    monkeypatch.setenv("RUNMANAGER_RUN", "outputs/first/runs/one")
    refuse_several_ranks(of_sweep=True)
    with pytest.raises(UsageError):
        refuse_several_ranks()


def test_the_rank_of_a_process_group_counts_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=3, world_size=8)
    try:
        assert rank_of_process(in_cell=False) == (3, 8)
    finally:
        torch.distributed.destroy_process_group()
