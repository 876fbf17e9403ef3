"""The work of a step, through any loop: equal to counts by hand, and without effect on the training."""

import copy
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from runmanager import RunManager, RunOptions
from runmanager.records.files.paths import SweepPaths, device_peaks_file
from runmanager.records.host.gpus import DevicePeaks, save_device_peaks
from runmanager.records.run.run_record import UNKNOWN_WORK
from runmanager.records.storage.reader import StoredRun, read_sweep
from runmanager.results.findings.roofline import roofline_rows
from runmanager.tracking.environment.environment import capture_environment
from runmanager.tracking.options import TensorBoardOptions

PEAKS = {"fp32": 5e10, "bf16": 2e11}
LOSS = torch.tensor(1.0)


@pytest.fixture(autouse=True)
def calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = device_peaks_file()
    assert path is not None
    environment = capture_environment(torch.device("cpu"))
    peaks = DevicePeaks(
        device_name=environment.device_name or "",
        threads=torch.get_num_threads(),
        torch=str(torch.__version__),
        flops_per_second=PEAKS,
    )
    save_device_peaks(path, [peaks])


Train = Callable[..., StoredRun]


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """Return a function that runs `body(run)` as a run, and reads it."""

    def train(network: nn.Module, body: Callable[[Any], None], loader: Any = None, **options: Any) -> StoredRun:
        manager = RunManager(tmp_path / "sweep", console=False, tensorboard=TensorBoardOptions(enabled=False))
        with manager.run({}, network, loader, **options) as run:
            body(run)
        (stored,) = read_sweep(SweepPaths(tmp_path / "sweep")).runs
        assert stored.record.status == "finished", stored.record.message
        return stored

    return train


def assert_shares(tmp_path: Path, run: StoredRun, flop_per_epoch: float, *, precision: str = "fp32") -> None:
    """Check the shown FLOP/s and MFU against the FLOP of an epoch, within 2%."""
    (row,) = roofline_rows(read_sweep(SweepPaths(tmp_path / "sweep")), None).rows
    rates = sorted(flop_per_epoch / (epoch.epoch_seconds or 0) for epoch in run.epochs if not epoch.warmup)
    assert len(rates) % 2 == 1, "the median is one of them"
    assert row["precision"] == precision
    assert row["flop_per_second"] == pytest.approx(rates[len(rates) // 2], rel=0.02)
    assert row["flop_share"] == pytest.approx(rates[len(rates) // 2] / PEAKS[precision], rel=0.02)


class Transformer(nn.Module):
    """A causal language model whose batches are dictionaries."""

    def __init__(self, *, vocabulary: int = 64, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm": nn.LayerNorm(width),
                    "qkv": nn.Linear(width, 3 * width),
                    "proj": nn.Linear(width, width),
                    "mlp": nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)),
                }
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, vocabulary)

    def forward(self, *, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.embedding(ids)
        mask = None if mask.all() else mask[:, None, None, :]  # type: ignore[assignment]  # as transformers does
        for layer in self.layers:
            assert isinstance(layer, nn.ModuleDict)
            heads = layer["qkv"](layer["norm"](hidden)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(*heads, attn_mask=mask, is_causal=mask is None)
            hidden = hidden + layer["proj"](mixed.transpose(1, 2).flatten(2))
            hidden = hidden + layer["mlp"](hidden)
        return {"logits": self.head(hidden), "hidden": hidden}


def test_a_transformer_with_accumulation_autocast_and_nested_batches(tmp_path: Path, train: Train) -> None:
    network, length, size, parts = Transformer(), 24, 4, 3
    optimizer = torch.optim.AdamW(network.parameters())

    def batches() -> Iterator[Any]:  # without a length, and the inputs are not first
        for _ in range(6 * parts):
            ids = torch.randint(64, (size, length))
            yield {"labels": ids, "inputs": {"ids": ids, "mask": torch.ones(size, length, dtype=torch.bool)}}

    def body(run: Any) -> None:
        for epoch in run.epochs(4):
            for number, batch in enumerate(epoch.batches(batches()), start=1):
                with torch.autocast("cpu", torch.bfloat16):
                    logits = network(**batch["inputs"])["logits"]
                    loss = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten())
                (loss / parts).backward()
                if number % parts == 0:
                    optimizer.step()
                    optimizer.zero_grad()
                    epoch.track(loss, samples=parts * size, tokens=parts * size * length)
            with epoch.evaluating(), torch.no_grad():
                network(**batch["inputs"])

    run = train(network, body, optimizer=optimizer)
    weights = sum(part.weight.numel() for part in network.modules() if isinstance(part, nn.Linear))
    tokens = parts * size * length
    attention = 12 * 2 * length * 32  # for each token: layers, length, width; forward and backward
    flop = (6 * weights + attention) * tokens
    found = run.record.measurements
    assert found.flop_per_step == pytest.approx(flop, rel=0.02)
    assert found.step_units == {"samples": parts * size} and found.bytes_per_step is None
    assert not any("work" in note for note in run.record.notes)
    assert_shares(tmp_path, run, 6 * flop, precision="bf16")


@pytest.mark.parametrize("is_tracked_each", [True, False])
def test_accumulation_whatever_is_tracked(tmp_path: Path, train: Train, is_tracked_each: bool) -> None:
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.rand(256, 64)), batch_size=16)

    def body(run: Any) -> None:
        for epoch in run.epochs(4):
            for number, (inputs,) in enumerate(epoch.batches(loader), start=1):
                network(inputs).sum().backward()
                if number % 4 == 0:
                    optimizer.step()
                if is_tracked_each:
                    epoch.track(LOSS, samples=16)
                elif number % 4 == 0:
                    epoch.track(LOSS, samples=64)

    run = train(network, body, loader, optimizer=optimizer)
    of_sample = 2 * (64 * 128 * 2 + 128 * 8 * 3)  # the inputs of the first layer need no gradient
    found, step = run.record.measurements, 16 if is_tracked_each else 64
    assert found.flop_per_step == of_sample * step and found.step_units == {"samples": step}
    passes, updates = 9, 4  # operators: addmm twice, relu; 2 and 4 products' gradients, …; one for each parameter
    assert found.operations_per_step == (passes + updates / 4 if is_tracked_each else 4 * passes + updates)
    assert_shares(tmp_path, run, of_sample * 256)


def test_a_convolutional_network_whose_last_batch_is_smaller(tmp_path: Path, train: Train) -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16 * 16, 4))
    loader = DataLoader(TensorDataset(torch.rand(50, 3, 16, 16), torch.zeros(50, dtype=torch.long)), batch_size=20)

    def body(run: Any) -> None:
        for epoch in run.epochs(4):
            for images, labels in loader:  # without epoch.batches
                loss = F.cross_entropy(network(images), labels)
                loss.backward()
                epoch.track(loss, samples=len(images))

    run = train(network, body, loader)
    of_sample = 2 * 2 * (8 * 16 * 16) * (3 * 3 * 3) + 3 * 2 * (8 * 16 * 16) * 4
    assert run.record.measurements.flop_per_step == 20 * of_sample
    assert_shares(tmp_path, run, 50 * of_sample)


def test_two_networks_that_train_each_other(tmp_path: Path, train: Train) -> None:
    generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 32))
    critic = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
    of_generator, of_critic = 2 * (8 * 64 + 64 * 32), 2 * (32 * 64 + 64)
    every, steps, size = 3, 12, 10

    def body(run: Any) -> None:
        for epoch in run.epochs(4):
            for number, (real,) in enumerate(epoch.batches([[torch.rand(size, 32)]] * steps), start=1):
                fake = generator(torch.rand(size, 8))
                critic.requires_grad_(True)
                (critic(real).mean() - critic(fake.detach()).mean()).backward()
                if number % every == 0:
                    critic.requires_grad_(False)
                    critic(fake).mean().backward()
                epoch.track(LOSS, samples=size)

    run = train(nn.ModuleDict({"generator": generator, "critic": critic}), body)
    of_step = of_generator + 2 * (3 * of_critic - 2 * 32 * 64)  # the first layer's input needs no gradient
    of_update = 2 * of_generator - 2 * 8 * 64 + 2 * of_critic  # frozen weights need none
    flop = size * (of_step + of_update / every)
    assert run.record.measurements.flop_per_step == pytest.approx(flop)
    assert_shares(tmp_path, run, steps * flop)
    (note,) = [note for note in run.record.notes if "the work of a step" in note]
    assert "varies by" in note and "its mean counts" in note


def test_sequences_of_different_lengths_count_by_their_tokens(tmp_path: Path, train: Train) -> None:
    network = nn.LSTM(4, 16, batch_first=True)
    generator = torch.Generator().manual_seed(0)

    def body(run: Any) -> None:
        for epoch in run.epochs(4):
            for _ in range(10):
                length = int(torch.randint(5, 12, (), generator=generator))
                network(torch.rand(2, length, 4))[0].sum().backward()
                epoch.track(LOSS, samples=2, tokens=2 * length)

    found = train(network, body).record.measurements
    assert isinstance(found.step_units, dict) and list(found.step_units) == ["tokens"]
    of_token = 2 * 4 * 16 * (2 * 4 + 3 * 16)
    assert found.flop_per_step == pytest.approx(of_token * found.step_units["tokens"], rel=0.1)  # the ends


class Trunk(nn.Module):
    """Two heads on a trunk, which is computed again in the backward pass."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(16, 32), nn.Tanh())
        self.heads = nn.ModuleList(nn.Linear(32, 4) for _ in range(2))
        self._reentrant = reentrant

    def forward(self, inputs: torch.Tensor) -> Any:
        features = checkpoint(self.trunk, inputs, use_reentrant=self._reentrant)
        return tuple(head(features) for head in self.heads)


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_activations_views_and_separate_losses(train: Train, reentrant: bool) -> None:
    network, inputs = Trunk(reentrant=reentrant), torch.rand(5, 16, requires_grad=True)

    def body(run: Any) -> None:
        for epoch in run.epochs(1):
            with torch.no_grad():
                network(inputs)
            first, second = network(inputs), network(inputs)
            (first[0].sum() + second[0].sum() + second[1].sum()).backward()
            epoch.track(LOSS, samples=5)
            network.eval()
            with torch.no_grad():
                network(inputs)
            epoch.track_eval(LOSS, samples=5)

    trunk, head = 2 * 5 * 16 * 32, 2 * 5 * 32 * 4
    forward, backward = trunk + 2 * head, 2 * trunk
    found = train(network, body).record.measurements
    assert found.flop_per_step == 3 * forward + 2 * backward + 2 * head * (1 + 2)


def test_losses_that_go_back_one_after_the_other_count_twice(train: Train) -> None:
    network, inputs = nn.LazyLinear(4), torch.rand(5, 8)

    def body(run: Any) -> None:
        for epoch in run.epochs(1):
            outputs = network(inputs)
            outputs.sum().backward(retain_graph=True)
            outputs.mean().backward()
            epoch.track(LOSS, samples=5)

    assert train(network, body).record.measurements.flop_per_step == 3 * 2 * 5 * 8 * 4


class Branching(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = super().forward(inputs)
        return super().forward(outputs) if (inputs > 0).all() else outputs


def penalised(network: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    inputs = inputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(network(inputs).sum(), inputs, create_graph=True)
    return gradient.square().sum()


@pytest.mark.parametrize(
    ("network", "forward", "reason"),
    [
        (Branching(8, 8), None, "its work depends on the values of its tensors"),
        (nn.Sequential(nn.Linear(8, 8), nn.Tanh()), penalised, "it differentiates its gradients"),
        (nn.Linear(8, 8), lambda network, inputs: (inputs @ network.weight).sum(), "no call of the network was seen"),
    ],
)
def test_work_that_cannot_be_counted_is_noted_and_can_be_stated(
    tmp_path: Path, train: Train, network: nn.Module, forward: Any, reason: str
) -> None:
    def body(run: Any) -> None:
        for epoch in run.epochs(4):
            for _ in range(3):
                loss = (forward or (lambda network, inputs: network(inputs).sum()))(network, torch.rand(5, 8))
                loss.backward()
                epoch.track(loss, samples=5)

    run = train(network, body)
    (note,) = [note for note in run.record.notes if note.startswith(UNKNOWN_WORK)]
    assert reason in note and note.endswith("RunOptions(flop_per_sample=…) states it")
    assert run.record.measurements.flop_per_step is None
    manager = RunManager(tmp_path / "stated", console=False, tensorboard=TensorBoardOptions(enabled=False))
    with manager.run({}, network, options=RunOptions(flop_per_sample=1e6)) as stated:
        pass
    with manager.run({"seed": 1}, network, options=RunOptions(flop_per_sample=1e6)) as stated:
        body(stated)
    assert stated.record.measurements.flop_per_step == 5_000_000
    assert not any("work" in note for note in stated.record.notes)


def test_a_stated_precision_counts(train: Train) -> None:
    network = nn.Linear(8, 4)

    def body(run: Any) -> None:
        for epoch in run.epochs(1):
            network(torch.rand(5, 8)).sum().backward()
            epoch.track(LOSS, samples=5)

    assert train(network, body, options=RunOptions(precision="fp16")).record.measurements.precision == "fp16"


def test_observing_leaves_network_training_and_copies_as_they_are(train: Train) -> None:
    def steps(network: nn.Module, inputs: torch.Tensor) -> list[float]:
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        losses = []
        for _ in range(3):
            loss = network(inputs).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        return losses

    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.Linear(8, 8))
    plain, inputs = copy.deepcopy(network), torch.rand(5, 8)
    torch.manual_seed(1)
    expected, state = steps(plain, inputs), torch.get_rng_state()
    found: list[float] = []
    copies: list[nn.Module] = []

    def body(run: Any) -> None:
        torch.manual_seed(1)
        for epoch in run.epochs(1):
            found.extend(steps(network, inputs))
            epoch.track(LOSS, samples=5)
            stream = io.BytesIO()
            torch.save(network, stream)
            stream.seek(0)
            copies.extend([copy.deepcopy(network), torch.load(stream, weights_only=False)])
        assert torch.equal(torch.get_rng_state(), state)

    run = train(network, body)
    assert found == expected
    assert all(copied(inputs).shape == (5, 8) for copied in copies)
    assert run.record.measurements.flop_per_step == 3 * 2 * 5 * 8 * 8 * (3 + 2)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in network.modules())


def test_compiled_code_is_seen_from_outside_and_compiled_once(train: Train) -> None:
    compilations: list[int] = []

    def backend(graph: Any, _inputs: Any) -> Any:
        compilations.append(1)
        return graph.forward

    def body_of(call: Any) -> Callable[[Any], None]:
        def body(run: Any) -> None:
            for epoch in run.epochs(3):
                for _ in range(15):
                    call(inputs).sum().backward()
                    epoch.track(LOSS, samples=5)

        return body

    network, inputs = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), torch.rand(5, 8)
    compiled: Any = torch.compile(network, backend=backend)
    seen = train(compiled, body_of(compiled))
    found = seen.record.measurements
    assert (found.flop_per_step, found.operations_per_step) == (2 * 2 * 5 * 8 * 8, None)
    assert len(compilations) == 1


def test_the_work_of_a_network_that_was_compiled_later_is_unknown(train: Train) -> None:
    compilations: list[int] = []

    def backend(graph: Any, _inputs: Any) -> Any:
        compilations.append(1)
        return graph.forward

    network, loader = nn.Sequential(nn.Linear(8, 8), nn.Tanh()), DataLoader(TensorDataset(torch.rand(40, 8)), 5)
    compiled: Any = torch.compile(network, backend=backend)

    def body(run: Any) -> None:
        for epoch in run.epochs(3):
            for (inputs,) in epoch.batches(loader):
                compiled(inputs).sum().backward()
                epoch.track(LOSS, samples=5)

    run = train(network, body, loader)
    assert run.record.measurements.flop_per_step is None
    assert any("begin the run with what `torch.compile` returns" in note for note in run.record.notes)
    assert len(compilations) == 1, "removing the hooks does not compile it again"
