"""Networks whose parameters are spread over two ranks on gloo: their run is that of the whole network."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import StoredRun, read_sweep

from ...processes import TIMEOUT_SECONDS

TRAIN = """
import os, sys, torch, runmanager
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

def sharded(way):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    if way == "fully_shard":
        for part in (net[0], net[2], net):
            fully_shard(part)
    if way in ("flat", "original"):
        whole = way == "original"
        for at in (0, 2):
            net[at] = FullyShardedDataParallel(net[at], device_id=torch.device("cpu"), use_orig_params=whole)
        net = FullyShardedDataParallel(net, device_id=torch.device("cpu"), use_orig_params=whole)
    return net

folder, *ways = sys.argv[1:]
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
if world > 1:
    dist.init_process_group("gloo")
generator = torch.Generator().manual_seed(1)
inputs = torch.randn(24, 5, generator=generator)
labels = (inputs.sum(1) > 0).long()
batches = [(inputs[at : at + 8][rank::world], labels[at : at + 8][rank::world]) for at in range(0, 24, 8)]
board = runmanager.TensorBoardOptions(histograms=True)
for way in ways:
    net = sharded(way)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    root = f"{folder}/{way}"
    with runmanager.start_run(net, params={}, optimizer=optimizer, root=root, tensorboard=board) as run:
        for epoch in run.epochs(2):
            for features, target in epoch.batches(batches):
                optimizer.zero_grad()
                scores = net(features)
                loss = nn.functional.cross_entropy(scores, target)
                loss.backward()
                optimizer.step()
                epoch.track(loss, scores, target)
"""

Mortal = Callable[[subprocess.Popen[Any]], subprocess.Popen[Any]]
WAYS = ("fully_shard", "flat", "original")


@pytest.fixture
def train(tmp_path: Path, mortal: Mortal) -> Callable[..., list[StoredRun]]:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)

    def run(*ways: str, started_by: tuple[str, ...] = ()) -> list[StoredRun]:
        words = [sys.executable, *started_by, str(script), str(tmp_path), *ways]
        process = mortal(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        output = process.communicate(timeout=TIMEOUT_SECONDS)[0]
        assert process.returncode == 0, output[-3000:]
        return [read_sweep(SweepPaths(tmp_path / way)).runs[0] for way in ways]

    return run


def test_a_sharded_network_is_recorded_as_the_whole_one(train: Callable[..., list[StoredRun]]) -> None:
    (whole,) = train("whole")
    assert whole.record.num_parameters == 5 * 7 + 7 + 7 * 3 + 3
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    for way, run in zip(WAYS, train(*WAYS, started_by=torchrun), strict=True):
        assert (run.record.status, run.record.world_size, run.record.deviations) == ("finished", 2, ()), way
        assert run.record.num_parameters == whole.record.num_parameters, way
        assert [epoch.samples for epoch in run.epochs] == [24, 24], way
        assert [epoch.loss for epoch in run.epochs] == pytest.approx([epoch.loss for epoch in whole.epochs], rel=1e-4)
        assert [epoch.accuracy for epoch in run.epochs] == [epoch.accuracy for epoch in whole.epochs], way
        assert run.record.peak_memory_bytes, way
        copied = [line for line in run.record.notes if "for which a copy of it would wait" in line]
        assert len(copied) == 2, "no copy is called in one rank: neither for the graph nor to count the work of a step"
