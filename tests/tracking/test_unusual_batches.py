"""Batches of any kind: what looks at them neither ends nor changes a run, and says what it could not see."""

import csv
import random
import warnings
from collections import OrderedDict, UserDict, namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from runmanager import RunManager
from runmanager.errors import UsageError

from .conftest import stored_runs

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*nested.*", "ignore:.*Sparse.*", "ignore:.*quantize.*"),  # of making them
]

INPUTS, LABELS = torch.rand(8, 4), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
IMAGES = torch.rand(8, 1, 8, 8)
Pair = namedtuple("Pair", "images labels")


class Refusing(torch.Tensor):
    """Raises whatever is done with it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError("not with this tensor")


class Talking(torch.Tensor):
    """Prints and warns whatever is done with it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        print("touched")
        warnings.warn("touched", stacklevel=1)
        return super().__torch_function__(func, types, args, kwargs or {})


class Unreadable(dict[str, Any]):
    def _refuse(self, *_: Any) -> Any:
        print("read")
        raise RuntimeError("cannot be read")

    items = values = __getitem__ = __len__ = __bool__ = _refuse  # type: ignore[assignment]


class Opaque:
    """A container that knows nothing but its own ways."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class Encoding(UserDict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        if name == "data" or name not in self.data:
            raise AttributeError(name)
        return self.data[name]


@dataclass
class Graphs:
    """Like a batch of PyTorch Geometric: its length is not its number of graphs."""

    x: torch.Tensor
    batch: torch.Tensor

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> "Graphs":
        return self


def with_bad(name: str) -> torch.Tensor:
    def refuse(*_: Any) -> Any:
        raise ValueError(f"bad {name}")

    is_method = name in ("__len__", "__bool__", "size", "to", "detach")
    return INPUTS.as_subclass(type("Bad", (torch.Tensor,), {name: refuse if is_method else property(refuse)}))


def inside_itself() -> list[Any]:
    batch: list[Any] = [INPUTS, LABELS]
    batch.append(batch)
    return batch


KINDS: Mapping[str, Callable[[], Any]] = {
    "coo": lambda: (INPUTS.to_sparse(), LABELS),
    "coo images": lambda: (IMAGES.to_sparse(), LABELS),
    "csr": lambda: (INPUTS.to_sparse_csr(), LABELS),
    "csc": lambda: (INPUTS.to_sparse_csc(), LABELS),
    "bsr": lambda: (INPUTS.to_sparse_bsr((2, 2)), LABELS),
    "mkldnn": lambda: (IMAGES.to_mkldnn(), LABELS),
    "nested": lambda: (torch.nested.nested_tensor([torch.rand(2, 4), torch.rand(3, 4)]), LABELS[:2]),
    "jagged": lambda: (torch.nested.nested_tensor([INPUTS[:2], INPUTS[:3]], layout=torch.jagged), LABELS[:2]),
    "no images": lambda: (IMAGES[:0], LABELS[:0]),
    "images without pixels": lambda: (torch.rand(2, 3, 0, 8), LABELS[:2]),
    "quantised": lambda: (torch.quantize_per_tensor(IMAGES, 0.1, 0, torch.quint8), LABELS),
    "meta": lambda: (IMAGES.to("meta"), LABELS),
    "refusing": lambda: (IMAGES.as_subclass(Refusing), LABELS),
    "talking": lambda: (IMAGES.as_subclass(Talking), LABELS),
    **{
        f"bad {name}": (lambda name=name: (with_bad(name), LABELS))  # type: ignore[misc]
        for name in ("__len__", "__bool__", "size", "to", "detach", "shape", "ndim", "dtype", "device")
    },
    "named tuple": lambda: Pair(INPUTS, LABELS),
    "mapping": lambda: OrderedDict(inputs=INPUTS, labels=LABELS),
    "encoding": lambda: Encoding(inputs=INPUTS, labels=LABELS),
    "unreadable": lambda: Unreadable(inputs=INPUTS),
    "opaque": Opaque,
    "graphs": lambda: Graphs(INPUTS, LABELS),
    "lists": lambda: [[1, 2], [3, 4]],
    "words": lambda: ["a", "b"],
    "nothing": lambda: None,
    "generator": lambda: iter(range(3)),
    "numbers": lambda: (torch.tensor(1.0), torch.tensor(1)),
    "complex": lambda: (IMAGES + 0j, LABELS),
    "float8": lambda: (IMAGES.to(torch.float8_e4m3fn), LABELS),
    "packed": lambda: nn.utils.rnn.pack_sequence([INPUTS[:3], INPUTS[:2]]),
    "inside itself": inside_itself,
    "huge": lambda: (torch.zeros(1, 3, 1, 1).expand(100_000, 3, 30_000, 30_000), LABELS),
}


class OneShot:
    """A loader that gives its batches once, and cannot be looked into."""

    def __init__(self, *batches: Any) -> None:
        self._batches = iter(batches)

    def __iter__(self) -> Iterator[Any]:
        return self._batches


def one_run(manager: RunManager, name: str, loader: Any, batch: Any) -> None:
    network = nn.Linear(4, 3)
    with manager.run({"kind": name}, network, loader) as run:
        for epoch in run.epochs(1):
            for got in epoch.batches(loader):
                assert got is batch
                network(INPUTS).sum().backward()
                epoch.track(torch.tensor(1.0), samples=8)


@pytest.mark.parametrize("in_list", [True, False], ids=["list", "one-shot"])
def test_no_kind_of_batch_ends_or_changes_a_run(
    tmp_path: Path, in_list: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    manager = RunManager(tmp_path / "sweep", console=False)
    batches = {name: make() for name, make in KINDS.items()}
    states = torch.get_rng_state(), random.getstate(), str(np.random.get_state())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        for name, batch in batches.items():
            torch.set_rng_state(states[0])
            one_run(manager, name, [batch, batch] if in_list else OneShot(batch, batch), batch)
            after = torch.get_rng_state()
            torch.set_rng_state(states[0])
            nn.Linear(4, 3)
            assert torch.equal(torch.get_rng_state(), after), f"{name}: only the network draws"
    assert (random.getstate(), str(np.random.get_state())) == states[1:]
    assert not [str(each.message) for each in caught if issubclass(each.category, UserWarning)]
    assert capfd.readouterr() == ("", "")
    runs = {run.record.config["kind"]: run for run in stored_runs(tmp_path / "sweep")}
    assert runs.keys() == KINDS.keys()
    for name, run in runs.items():
        assert (run.record.status, [(epoch.samples, epoch.loss) for epoch in run.epochs]) == ("finished", [(16, 1.0)])
        unseen = [note for note in run.record.notes if note.startswith("a batch could not be looked at")]
        assert len(unseen) == (name in ("unreadable", "opaque")), f"{name}: {run.record.notes}"
    assert any("no image grid: images must be dense" in note for note in runs["coo images"].record.notes)


def test_a_look_that_fails_halfway_restores_what_it_changed(tmp_path: Path) -> None:
    class Broken(Dataset[Any]):
        """Draws from every generator and changes how torch works before it fails."""

        reads = 0

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> torch.Tensor:
            type(self).reads += 1
            torch.rand(1), random.random(), np.random.rand()
            torch.set_grad_enabled(False)
            torch.set_default_dtype(torch.float64)
            raise OSError("no such picture")

    network = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    states = torch.get_rng_state(), random.getstate(), str(np.random.get_state())
    with RunManager(tmp_path / "sweep", console=False).run({}, network, DataLoader(Broken(), batch_size=2)) as run:
        assert Broken.reads and torch.is_grad_enabled() and torch.get_default_dtype() == torch.float32
        assert torch.equal(torch.get_rng_state(), states[0])
        assert (random.getstate(), str(np.random.get_state())) == states[1:]
        assert network.training and network.state_dict()["1.num_batches_tracked"].item() == 0
        for epoch in run.epochs(1):
            network(INPUTS)
            epoch.track(torch.tensor(1.0), samples=8)
    assert run.record.status == "finished"


def test_a_stream_is_not_asked_for_its_length(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """PyTorch holds what is given against a length that was asked for, and warns."""

    class Stream(IterableDataset[torch.Tensor]):
        def __len__(self) -> int:
            return 1

        def __iter__(self) -> Iterator[torch.Tensor]:
            return iter(INPUTS)

    loader = DataLoader(Stream(), batch_size=2)
    network = nn.Linear(4, 3)
    with RunManager(tmp_path / "sweep", console=False).run({}, network, loader) as run:
        for epoch in run.epochs(1):
            for batch in epoch.batches(loader):
                epoch.track(network(batch).mean(), samples=2)
    assert not [str(each.message) for each in recwarn if "IterableDataset" in str(each.message)]


def test_samples_that_a_batch_does_not_show_are_not_known(tmp_path: Path) -> None:
    manager = RunManager(tmp_path / "sweep", console=False)
    Settings = namedtuple("Settings", "kind")
    lost = [[(torch.rand(3, 4, 4), torch.tensor(1))] * 5, Graphs(INPUTS, LABELS)]
    for kind, batches, samples in (("unknown", lost, None), ("stated", lost, 5)):
        manager.begin_run(Settings(kind), nn.Linear(4, 3), None)
        manager.begin_epoch()
        for loss, batch in zip((1.0, 2.0), batches, strict=True):
            manager.track_loss(torch.tensor(loss), batch, samples=samples)
        manager.end_epoch()
        manager.end_run()
    manager.save(str(tmp_path / "results"))
    unknown, stated = stored_runs(tmp_path / "sweep")
    assert (unknown.epochs[0].loss, unknown.epochs[0].samples_per_second) == (1.5, None)
    assert [note for note in unknown.record.notes if "the number of samples is not known" in note]
    assert (stated.epochs[0].samples, stated.epochs[0].loss) == (10, 1.5)
    assert not [note for note in stated.record.notes if "number of samples" in note]
    with (tmp_path / "results.csv").open(newline="") as file:
        assert [row["samples"] for row in csv.DictReader(file)] == ["", "10"]


SCORES, CLASSES = torch.tensor([[2.0, 1, 0], [0, 2, 1], [1, 0, 3], [5, 0, 0]]), torch.tensor([0, 1, 2, 1])


@pytest.mark.parametrize(
    ("make", "accuracy"),
    [
        (torch.Tensor.to_sparse, 0.75),
        (lambda scores: scores.to_sparse_csr(), 0.75),
        (torch.Tensor.to_mkldnn, 0.75),
        (lambda scores: torch.quantize_per_tensor(scores, 0.1, 0, torch.quint8), 0.75),
        (lambda scores: scores.to(torch.float8_e4m3fn), 0.75),
        (lambda scores: scores.as_subclass(Refusing), 0.75),
        (lambda scores: scores + 0j, None),
        (lambda scores: torch.nested.nested_tensor(list(scores)), None),
    ],
    ids=["coo", "csr", "mkldnn", "quantised", "float8", "refusing", "complex", "nested"],
)
def test_predictions_of_any_kind_are_compared_or_said_not_to_be(
    tmp_path: Path, make: Callable[[torch.Tensor], torch.Tensor], accuracy: float | None
) -> None:
    scores, classes = make(SCORES), CLASSES.as_subclass(Refusing)
    with RunManager(tmp_path / "sweep", console=False).run({}, nn.Linear(1, 1), None) as run:
        for epoch in run.epochs(1):
            epoch.track(torch.tensor(1.0).as_subclass(Refusing), SCORES, CLASSES)
            epoch.track(torch.tensor(1.0), scores, classes)
            epoch.track_eval(torch.tensor(1.0), scores, classes)
    (record,) = run.history
    assert (record.samples, record.accuracy, record.val_accuracy) == (8, accuracy, accuracy)
    said = [note for note in run.record.notes if "predictions is not known" in note]
    assert len(said) == (0 if accuracy else 2)


def test_labels_that_are_no_tensor_are_refused_with_the_way_out(tmp_path: Path) -> None:
    with RunManager(tmp_path / "sweep", console=False).run({}, nn.Linear(1, 1), None) as run:
        for epoch in run.epochs(1):
            with pytest.raises(UsageError, match=r"got labels that are a list; pass samples=…"):
                epoch.track(torch.tensor(1.0), labels=[1, 2])  # type: ignore[arg-type]


class Branching(nn.Module):
    """Takes its whole batch, a dictionary, and looks at what it holds."""

    def __init__(self, read: str) -> None:
        super().__init__()
        self.layer, self.read = nn.Linear(4, 3), read

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.layer(batch["x"] if batch[self.read].sum() > 0 else -batch["x"])


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_dictionary_is_drawn_or_it_is_said_why_not(tmp_path: Path, is_seen: bool) -> None:
    network = Branching("x")
    batch = {"x": INPUTS, "labels": LABELS}
    loader = [batch] if is_seen else None
    with RunManager(tmp_path / "sweep", console=False).run({}, network, loader) as run:
        for epoch in run.epochs(1):
            loss = network(batch).mean()
            loss.backward()
            epoch.track(loss, samples=8)
    graphs = [note for note in run.record.notes if "graph" in note]
    (stored,) = stored_runs(tmp_path / "sweep")
    (events,) = stored.paths.root.glob("events.*")
    assert (b"Branching/Linear" in events.read_bytes()) == is_seen
    if is_seen:
        assert graphs == []
    else:
        assert len(graphs) == 1 and "could not be followed" in graphs[0] and "meta" in graphs[0]
