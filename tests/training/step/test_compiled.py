"""Compiled networks: compiled once before the first epoch, with the same results and without side effects."""

import functools
import random
import shutil

import pytest
import torch
from torch import nn

from runmanager.app.run_cell import train_cell
from runmanager.errors import ConfigurationError, TensorMismatchError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import read_run
from runmanager.tracking.lifecycle import run_measurements
from runmanager.training import job
from runmanager.training.options.groups import LogisticOptions
from runmanager.training.step.compiled import CompiledNetwork, compiler_faults
from runmanager.training.step.micro_batches import MicroBatches
from runmanager.training.step.stepper import Forward, Stepper

from ...job_options import job_options

CPU = torch.device("cpu")


class Compiler:
    """Replacement for inductor that records the compiled graphs."""

    def __init__(self, fault: str | None = None) -> None:
        self.num_graphs = 0
        self._fault = fault

    def __call__(self, graph, inputs):
        if self._fault is not None:
            raise RuntimeError(self._fault)
        self.num_graphs += 1
        return graph.forward


class Loader:
    num_samples, batch_size = 21, 8

    def first_samples(self, count):
        return torch.full((count, 5), 0.5), torch.zeros(count, dtype=torch.int64)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Dropout(0.2), nn.Linear(7, 3))


class Training:
    def __init__(self, *, compiler=None, model=None, size=None):
        self.messages = []
        self.network = network() if model is None else model
        self.compiled = compiler and CompiledNetwork(self.network, notify=self.messages.append, backend=compiler)
        optimizer = torch.optim.Adam(self.network.parameters(), fused=True)
        forward = Forward(self.network, apply=self.compiled)
        self.stepper = Stepper(forward, optimizer, pieces=MicroBatches(size))

    def compile(self):
        return self.compiled.compile_for(self.stepper.compute_gradients, Loader(), device=CPU)

    def epochs(self, count=2):
        losses = []
        for number in range(count):
            generator = torch.Generator().manual_seed(number)
            for size in (8, 8, 5):
                images, labels = torch.rand(size, 5, generator=generator), torch.randint(3, (size,))
                losses.append(self.stepper.train(images, labels)[0])
            self.network.eval()
            with torch.no_grad():
                losses.append(self.stepper.evaluate(images, labels)[0])
            self.network.train()
        return torch.stack(losses)


@pytest.fixture(autouse=True)
def compiled_again():
    yield
    torch.compiler.reset()


def test_only_the_full_batch_is_compiled_with_the_same_results():
    compiler = Compiler()
    compiled, plain = Training(compiler=compiler), Training()
    assert compiled.compile() >= 0
    assert compiler.num_graphs == 1
    losses = []
    for each in (plain, compiled):
        torch.manual_seed(1)
        losses.append(each.epochs())
    assert torch.allclose(*losses)
    assert compiler.num_graphs == 1, "the last batch and the evaluation go the plain way"
    assert not compiled.messages


def test_compiling_has_no_side_effects():
    training = Training(compiler=Compiler())
    training.network.eval()
    before = {name: value.clone() for name, value in training.network.state_dict().items()}
    torch.manual_seed(5)
    random.seed(5)
    states = torch.get_rng_state(), random.getstate()
    training.compile()
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    assert all(torch.equal(value, before[name]) for name, value in training.network.state_dict().items())
    assert not any(module.training for module in training.network.modules())
    assert all(parameter.grad is None for parameter in training.network.parameters())


def test_pieces_of_a_batch_are_compiled():
    compiler = Compiler()
    training = Training(compiler=compiler, model=nn.Linear(5, 3), size=4)
    training.compile()
    training.epochs()
    assert compiler.num_graphs == 1 and not training.messages


def test_compiling_during_an_epoch_is_reported():
    compiler = Compiler()
    training = Training(compiler=compiler)
    training.compile()
    training.stepper.train(torch.rand(6, 5), torch.zeros(6, dtype=torch.int64))
    assert training.messages == ["compile: compiled again during an epoch, for images of shape (6, 5)"]
    assert compiler.num_graphs == 2


def test_a_compiler_error_is_reported_in_one_line():
    with pytest.raises(ConfigurationError) as caught:
        Training(compiler=Compiler("no such operator\nand more")).compile()
    line = str(caught.value)
    assert line.startswith("`compile` must be false for this model on this machine, got true; torch.compile reports: ")
    assert "no such operator" in line and "\n" not in line


def test_errors_of_the_network_itself_are_raised_unchanged():
    compiler = Compiler("never called")
    with pytest.raises(TensorMismatchError, match="must have 4 values"):
        Training(compiler=compiler, model=nn.Linear(4, 3)).compile()


def test_a_missing_compiler_is_explained(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    (line,) = compiler_faults()
    assert line.startswith("`compile` must be false without a C++ compiler (no-such-compiler), got true; install")
    monkeypatch.setenv("CXX", "sh")
    assert compiler_faults() == []


def train(root, name, **changes):
    options = job_options(**{"epochs": 2, **changes})
    paths = SweepPaths(root / "sweep").run(name)
    train_cell(paths, options, {"device": "cpu"}, sinks=[])
    return read_run(paths)


def losses(run):
    return [(epoch.loss, epoch.val_loss) for epoch in run.epochs]


def weights(run):
    return torch.load(run.paths.checkpoint, weights_only=True)["model"]


def test_a_run_stores_the_compile_time_and_uncompiled_weights(tmp_path, monkeypatch):
    compiler = Compiler()
    monkeypatch.setattr(job, "CompiledNetwork", functools.partial(CompiledNetwork, backend=compiler))
    compiled, plain = train(tmp_path, "compiled", compile=True), train(tmp_path, "plain")
    assert compiler.num_graphs == 1
    assert compiled.record.measurements.compile_seconds > 0
    assert plain.record.measurements.compile_seconds is None
    assert losses(compiled) == losses(plain)
    assert weights(compiled).keys() == weights(plain).keys()
    assert all(torch.equal(value, weights(plain)[name]) for name, value in weights(compiled).items())


def test_the_peak_of_memory_is_that_after_the_uncompiled_trial(tmp_path, monkeypatch):
    events = []
    monkeypatch.setattr(run_measurements, "reset_peak_memory", lambda device: events.append("reset"))
    monkeypatch.setattr(run_measurements, "peak_memory", lambda device: events.append("peak"))

    class Compiled(CompiledNetwork):
        def __call__(self, images):
            events.append("compiled" if self._compiles is not False else "trial")
            return super().__call__(images)

    monkeypatch.setattr(job, "CompiledNetwork", functools.partial(Compiled, backend=Compiler()))
    train(tmp_path, "compiled", compile=True)
    after = events[len(events) - events[::-1].index("trial") :]
    assert after.index("reset") < after.index("peak")


def test_cudnn_tries_its_algorithms_within_a_run_that_asks_for_it(tmp_path):
    asked, plain = train(tmp_path, "asked", cudnn_benchmark=True), train(tmp_path, "plain")
    assert asked.record.environment.cudnn_benchmark is True and plain.record.environment.cudnn_benchmark is False
    assert torch.backends.cudnn.benchmark is False


@pytest.mark.skipif(shutil.which("g++") is None, reason="PyTorch's compiler needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # PyTorch's warning while it loads the compiler
def test_pytorchs_compiler(tmp_path):
    compiled, plain = (train(tmp_path, str(on), compile=on, model=LogisticOptions()) for on in (True, False))
    assert torch.allclose(torch.tensor(losses(compiled)), torch.tensor(losses(plain)), rtol=1e-5)
    seconds = compiled.record.measurements.compile_seconds
    walls = sum(epoch.wall_seconds for epoch in compiled.epochs)
    assert seconds > 0 and seconds + walls <= compiled.record.run_seconds, "it is in no epoch"
