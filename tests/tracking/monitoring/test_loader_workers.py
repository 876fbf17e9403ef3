"""Workers of loaders: how they started, and batches that one cannot send, which end the run instead of a long wait."""

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

from runmanager import RunManager
from runmanager.errors import NoRoomError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import StoredRun, read_sweep

from ...processes import TIMEOUT_SECONDS

ROOT = Path(__file__).resolve().parents[3]
# A worker may end itself just when its loader is collected: then torch's handler of SIGCHLD raises in `__del__`.
pytestmark = pytest.mark.filterwarnings(
    r"ignore:Exception ignored in. <function _\w*MultiProcessing\w*\.__del__:pytest.PytestUnraisableExceptionWarning"
)

NO_ROOM = "unable to allocate shared memory(shm) for file </torch_1>: No space left on device (28)"


class Unsendable:
    """Raises when it is pickled, like a tensor that finds no room in shared memory."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        raise self.error


class Triple(NamedTuple):
    image: Any
    label: Any
    weight: Any


class Nameless(Exception):
    """An error that cannot be sent, because its text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.filterwarnings("ignore:'set_vital'")  # of torchdata
@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            RuntimeError(NO_ROOM),
            "NoRoomError: Caught NoRoomError in DataLoader worker process 0: shared memory (/dev/shm) must have room "
            "for its batch, got none; make room there, or use num_workers=0.",
        ),
        (
            RuntimeError("unable to open shared memory object </torch_1> in read-write mode: Too many open files (24)"),
            "RuntimeError: Caught RuntimeError in DataLoader worker process 0: it must be able to send its batch, got "
            "unable to open shared memory object </torch_1> in read-write mode: Too many open files (24).",
        ),
    ],
)
def test_a_batch_that_cannot_be_sent_fails_the_run(
    tmp_path: Path,
    network: nn.Module,
    only_run: Callable[[], StoredRun],
    capfd: pytest.CaptureFixture[str],
    kind: Any,
    error: Exception,
    told: str,
) -> None:
    def collate(batch: list[int]) -> Any:
        return torch.tensor(batch) if batch[0] < 2 else Unsendable(error)

    check_told(tmp_path, network, only_run, kind(range(4), collate_fn=collate, **OPTIONS), told)
    assert str(error) in capfd.readouterr().err, "the worker's own traceback is printed too"


@pytest.mark.filterwarnings("ignore:'set_vital'")  # of torchdata
@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("shape", [tuple, Triple._make, list])
def test_a_lost_batch_may_have_any_shape(
    tmp_path: Path, network: nn.Module, only_run: Callable[[], StoredRun], kind: Any, shape: Any
) -> None:
    def collate(batch: list[int]) -> Any:
        return shape([Unsendable(RuntimeError(NO_ROOM)), torch.zeros(2), torch.zeros(2)])

    told = "NoRoomError: Caught NoRoomError in DataLoader worker process 0: shared memory"
    check_told(tmp_path, network, only_run, kind(range(4), collate_fn=collate, **OPTIONS), told)


class Stateful(Dataset[Any]):
    """Its state cannot be sent from the call `unsendable_from` on: the first one is taken when the worker starts."""

    def __init__(self, unsendable_from: int) -> None:
        self.calls_left = unsendable_from

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return torch.zeros(2)

    def state_dict(self) -> dict[str, Any]:
        self.calls_left -= 1
        return {"state": 0 if self.calls_left > 0 else Unsendable(RuntimeError("no state"))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to restore."""


@pytest.mark.filterwarnings("ignore:'set_vital'")  # of torchdata
@pytest.mark.parametrize("unsendable_from", [1, 2])
def test_a_state_that_cannot_be_sent_fails_the_run(
    tmp_path: Path, network: nn.Module, only_run: Callable[[], StoredRun], unsendable_from: int
) -> None:
    told = "RuntimeError: Caught RuntimeError in DataLoader worker process 0: it must be able to send its batch, got no"
    loader = StatefulDataLoader(Stateful(unsendable_from), **OPTIONS)
    check_told(tmp_path, network, only_run, loader, told)


@pytest.mark.filterwarnings("ignore:'set_vital'")  # of torchdata
@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
def test_an_error_that_cannot_be_sent_ends_the_worker(
    tmp_path: Path, network: nn.Module, only_run: Callable[[], StoredRun], kind: Any
) -> None:
    class LocalError(Exception):
        """Its type cannot be sent."""

    for number, error in enumerate([LocalError("here"), Nameless()]):
        loader = kind(range(4), collate_fn=lambda batch, error=error: (Unsendable(error), 0, None), **OPTIONS)
        with pytest.raises(RuntimeError, match="exited unexpectedly"):
            train(tmp_path / str(number), network, loader)


class Caching(Dataset[Any]):
    """Puts what cannot be sent into a queue of its own."""

    def __init__(self, queue: Any, item: Any) -> None:
        self.queue = queue
        self.item = item

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        self.queue.put(self.item)
        self.queue.put(index)
        return torch.tensor(index)


@pytest.mark.filterwarnings("ignore:'set_vital'")  # of torchdata
@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
def test_other_queues_in_a_worker_drop_what_cannot_be_sent(tmp_path: Path, network: nn.Module, kind: Any) -> None:
    lost = Unsendable(RuntimeError("not to be sent"))
    for number, item in enumerate([lost, ("cache", lost), (0, (lost, 0, None))]):
        queue = multiprocessing.get_context("fork").Queue()
        batches = train(tmp_path / str(number), network, kind(Caching(queue, item), **OPTIONS))
        assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3]]
        assert {type(queue.get(timeout=30)) for _ in range(4)} == {int}


@pytest.mark.filterwarnings("ignore:'set_vital'")  # of torchdata
def test_queues_of_forks_are_as_python_makes_them(tmp_path: Path, network: nn.Module, pipe: Any) -> None:
    receiver, sender = pipe
    before = vars(Queue)["_on_queue_feeder_error"]
    train(tmp_path / "sweep", network, DataLoader(range(4), **OPTIONS))  # type: ignore[arg-type]
    train(tmp_path / "sweep", network, DataLoader(range(4), **OPTIONS))  # type: ignore[arg-type]
    assert vars(Queue)["_on_queue_feeder_error"] is before, "the program's own queues are as they were"

    def fork() -> None:
        Queue._on_queue_feeder_error(ValueError("by the type"), None)  # type: ignore[attr-defined]
        queue = multiprocessing.get_context("fork").Queue()
        queue._on_queue_feeder_error(ValueError("by a queue"), None)  # type: ignore[attr-defined]
        queue.put(Unsendable(RuntimeError("by its thread")))
        queue.put("next")
        sender.send(queue.get(timeout=30))
        thread = next(each for each in threading.enumerate() if each.name == "QueueFeederThread")
        del queue
        gc.collect()
        thread.join(timeout=30)
        sender.send(thread.is_alive())

    run_fork(fork)
    assert receiver.recv() == "next"
    assert receiver.recv() is False, "the thread of a queue that is gone ends"


@pytest.mark.parametrize("is_method", [False, True])
def test_what_a_program_put_in_the_place_of_the_method_is_called(
    tmp_path: Path, network: nn.Module, monkeypatch: pytest.MonkeyPatch, pipe: Any, is_method: bool
) -> None:
    receiver, sender = pipe
    train(tmp_path / "sweep", network, DataLoader(range(4), **OPTIONS))  # type: ignore[arg-type]

    def print_error(error: Exception, item: Any) -> None:
        sender.send(str(error))

    def method(queue: Any, error: Exception, item: Any) -> None:
        sender.send(f"{type(queue).__name__} {error}")

    replaced: Any = method if is_method else staticmethod(print_error)
    monkeypatch.setattr(Queue, "_on_queue_feeder_error", replaced)

    def fork() -> None:
        queue = multiprocessing.get_context("fork").Queue()
        queue.put(Unsendable(RuntimeError("lost")))
        queue.put("next")
        queue.get(timeout=30)
        run_fork(lambda: queue._on_queue_feeder_error(ValueError("again"), None))  # type: ignore[attr-defined]

    run_fork(fork)
    assert [receiver.recv(), receiver.recv()] == (["Queue lost", "Queue again"] if is_method else ["lost", "again"])
    assert not receiver.poll()


@pytest.fixture
def pipe() -> Iterator[Any]:
    receiver, sender = multiprocessing.get_context("fork").Pipe(duplex=False)
    with receiver, sender:
        yield receiver, sender


def run_fork(function: Callable[[], None]) -> None:
    process = os.fork()
    if process == 0:
        status = 1
        try:
            function()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(process, 0)[1] == 0


OPTIONS: dict[str, Any] = {"batch_size": 2, "num_workers": 1, "timeout": 30, "multiprocessing_context": "fork"}


def train(sweep: Path, network: nn.Module, loader: Any) -> list[Any]:
    """Return the batches of an epoch."""
    with RunManager(sweep, sinks=[]).run({}) as run:
        run.begin(network, loader)
        return [batch for epoch in run.epochs(1) for batch in epoch.batches(loader)]


def check_told(tmp_path: Path, network: nn.Module, only_run: Callable[[], StoredRun], loader: Any, told: str) -> None:
    with pytest.raises((RuntimeError, NoRoomError)):
        train(tmp_path / "sweep", network, loader)
    stored = only_run()
    assert stored.status == "failed"
    assert stored.record.message.startswith(told), stored.record.message


LOST = """
import sys

import torch
from torch.utils.data import DataLoader
from runmanager import RunManager

class Unsendable:
    def __reduce__(self):
        raise RuntimeError("not to be sent")

def collate(batch):
    return Unsendable()

if __name__ == "__main__":
    options = {"num_workers": 1, "timeout": 60, "collate_fn": collate, "multiprocessing_context": sys.argv[1]}
    loader = DataLoader(range(4), **options)
    with RunManager("outputs/lost", console=False).run({}, torch.nn.Linear(2, 2), loader) as run:
        for epoch in run.epochs(1):
            list(epoch.batches(loader))
"""


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_worker_that_was_not_forked_tells_too(tmp_path: Path, method: str) -> None:
    (tmp_path / "train.py").write_text(LOST)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "train.py", method]
    assert subprocess.run(command, cwd=tmp_path, env=environment, check=False, timeout=TIMEOUT_SECONDS).returncode == 1
    (run,) = read_sweep(SweepPaths(tmp_path / "outputs" / "lost")).runs
    told = "RuntimeError: Caught RuntimeError in DataLoader worker process 0: it must be able to send its batch, got"
    assert run.record.message.startswith(told), run.record.message


STARTS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from runmanager import RunManager

DATA = TensorDataset(torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64))
NETWORK = torch.nn.Linear(2, 2)

def loader(method, **more):
    return DataLoader(DATA, batch_size=2, num_workers=int(method is not None), multiprocessing_context=method, **more)

def train(name, training, evaluation, through_run=True):
    try:
        with RunManager("outputs/starts", console=False).run({"name": name}, NETWORK, training) as run:
            for epoch in run.epochs(1):
                for inputs, labels in epoch.batches(training) if through_run else training:
                    epoch.track(NETWORK(inputs).sum(), samples=2)
                with epoch.evaluating():
                    for inputs, labels in evaluation:
                        epoch.track_eval(NETWORK(inputs).sum(), samples=2)
    except Exception as error:
        print(type(error).__name__)

if __name__ == "__main__":
    train("none", loader(None), loader(None))
    train("mixed", loader("fork"), loader("spawn"))
    train("own", loader("forkserver"), loader(None), through_run=False)
    train("lambda", loader("forkserver", collate_fn=lambda batch: batch), loader(None))
"""


def test_the_start_method_is_that_of_the_workers_themselves(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STARTS)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "train.py"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=TIMEOUT_SECONDS)
    records = [run.record for run in read_sweep(SweepPaths(tmp_path / "outputs" / "starts")).runs]
    methods = {record.config["name"]: record.measurements.worker_start_method for record in records}
    assert methods == {"none": None, "mixed": "fork and spawn", "own": "forkserver", "lambda": None}
    (failed,) = (record for record in records if record.status != "finished")
    assert (failed.config["name"], failed.status, failed.reason) == ("lambda", "failed", "exception")
    assert "pickle" in failed.message.lower() and "; the start method forkserver must pickle" in failed.message
    assert failed.message.endswith('give the loader multiprocessing_context="fork" or num_workers=0')
    assert "\n" not in failed.message
