"""A real Ray of two nodes on this machine, and commands of the application that use it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.run_record import RunRecord
from runmanager.records.storage.reader import read_epochs, read_sweep

from ..processes import discard, wait_for_output, wait_until

sys.path[:0] = [str(Path(__file__).parents[1] / "reliability")]
from sweeps import DYING  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
# Keeps two nodes, says the address, then obeys a line each: "lose" loses the second node at once.
CLUSTER = """
import logging, sys
import ray
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
nodes = [cluster.add_node(num_cpus=1)]
cluster.wait_for_nodes()
print(cluster.address, flush=True)
for line in sys.stdin:
    if line == "lose\\n":
        cluster.remove_node(nodes.pop(), allow_graceful=False)
    else:
        nodes.append(cluster.add_node(num_cpus=1))
        cluster.wait_for_nodes()
    print("done", flush=True)
cluster.shutdown()
"""
MAIN = "import sys\nfrom runmanager.cli.main import run_command\nsys.exit(run_command(sys.argv[1:]))"
VARIABLES = {
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "COLUMNS": "240",
    "PYTHONPATH": str(ROOT),
    "RAY_USAGE_STATS_ENABLED": "0",
}


@dataclass
class TwoNodes:
    """A running Ray: its address, and the process that keeps it."""

    process: subprocess.Popen[str]
    address: str

    def tell(self, line: str) -> None:
        """Let its keeper do something, and wait until it has."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


@pytest.fixture(scope="session")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    pytest.importorskip("ray", reason="needs the package ray")
    log = tmp_path_factory.mktemp("ray") / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", CLUSTER],
            env={**os.environ, **VARIABLES},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        )
    assert process.stdout is not None and process.stdin is not None
    address = process.stdout.readline().strip()
    assert address, log.read_text()
    try:
        yield TwoNodes(process, address)
    finally:
        process.stdin.close()
        process.wait(60)
        discard(process)


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str


@dataclass
class Bench:
    """A folder with `own.py`, in which commands are run with their cells on Ray."""

    folder: Path
    ray: TwoNodes
    started: list[subprocess.Popen[str]]

    def start(self, *words: str) -> subprocess.Popen[str]:
        self.started.append(
            subprocess.Popen(
                [sys.executable, *words],
                cwd=self.folder,
                env={**os.environ, **VARIABLES},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        return self.started[-1]

    def start_sweep(self, name: str, *words: str) -> subprocess.Popen[str]:
        """Start `runmanager sweep`."""
        options = ("--launcher", "ray", "--launcher-option", f"address={self.ray.address}", "--order", "grid")
        return self.start("-c", MAIN, "sweep", "--name", name, *options, *words)

    def end_of(self, process: subprocess.Popen[str]) -> Done:
        out, err = wait_for_output(process)
        return Done(process.returncode, out, err)

    def wait_until(self, condition: Callable[[], Any], what: str) -> Any:
        return wait_until(condition, what)

    def records(self, name: str) -> list[RunRecord]:
        return [run.record for run in read_sweep(SweepPaths(self.folder / "outputs" / name)).runs]

    def epochs(self, name: str, record: RunRecord) -> list[int]:
        paths = SweepPaths(self.folder / "outputs" / name)
        return [epoch.epoch for epoch in read_epochs(paths.run(record.name))]

    def close_gate(self) -> None:
        """Make runs with `way=gate` wait in their second epoch."""
        (self.folder / "gate").touch()

    def open_gate(self) -> None:
        (self.folder / "gate").unlink()


@pytest.fixture
def bench(two_nodes: TwoNodes, tmp_path: Path) -> Iterator[Bench]:
    shutil.copy(DYING, tmp_path / "own.py")
    bench = Bench(tmp_path, two_nodes, [])
    yield bench
    for process in bench.started:
        discard(process)
