"""The `state` of a custom loop: saved, restored and refused; tests/reliability kills such loops."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from runmanager import RunManager, RunOptions, TensorBoardOptions, UsageError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.reader import StoredRun, read_record, read_run, read_sweep

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torchmetrics = pytest.importorskip("torchmetrics")
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

NUM_SAMPLES, BATCH = 22, 4  # six steps an epoch
STEPS = 6


class Kill(KeyboardInterrupt):
    """The end of the process, as far as the run's files show it: it ends as `killed`."""


class Loop:
    """A small training with dropout, built in the same way each time."""

    def __init__(self, root: Path, *, width: int = 8, within: bool = False, seconds: float = 1e-9) -> None:
        torch.manual_seed(0)
        self.root = root
        self.network = nn.Sequential(nn.Linear(4, width), nn.Dropout(0.3), nn.Linear(width, 3))
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=0.05)
        self.state: dict[str, Any] = {"scheduler": torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)}
        self.options = RunOptions(checkpoint_seconds=seconds)
        dataset = TensorDataset(torch.rand(NUM_SAMPLES, 4), torch.randint(3, (NUM_SAMPLES,)))
        self.loader: Any = DataLoader(dataset, BATCH, shuffle=True)
        if within:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "'set_vital' is deprecated")
                generator = torch.Generator().manual_seed(2) if width == 8 else None  # the sampler draws from it too
                self.loader = stateful.StatefulDataLoader(dataset, BATCH, shuffle=True, generator=generator)
                self.state["loader"] = self.loader
        self.every_step: Callable[[Any, Any, Any], None] = lambda epoch, preds, labels: None
        self.every_epoch: Callable[[Any], None] = lambda epoch: None
        self.accumulate = 1

    def run(self, *, epochs: int = 3, kill: tuple[int, int] | None = None, **given: Any) -> Any:
        """Train; leave before this step of this epoch, counted from 1, as if killed."""
        manager = RunManager(self.root, tensorboard=TensorBoardOptions(enabled=False), console=False)
        given = {"state": self.state, "optimizer": self.optimizer, "options": self.options} | given
        with manager.run({"lr": 0.05}, self.network, self.loader, **given) as run:
            for epoch in run.epochs(epochs):
                for step, (inputs, labels) in enumerate(epoch.batches(self.loader), start=1):
                    done = epoch.num_steps - run.num_steps
                    if kill == (epoch.number, done + 1):
                        raise Kill
                    preds = self.network(inputs)
                    loss = F.cross_entropy(preds, labels)
                    (loss / self.accumulate).backward()
                    if step % self.accumulate == 0:
                        self.optimizer.step()
                        self.optimizer.zero_grad()
                    epoch.track(loss, preds, labels, tokens=2 * len(labels), metrics={"size": preds.detach().norm()})
                    run.log(drawn=preds.detach().sum(), reduce="sum")
                    self.every_step(epoch, preds, labels)
                self.state["scheduler"].step()
                self.every_epoch(epoch)
        return run

    def killed(self, epoch: int, step: int, **given: Any) -> "Loop":
        with pytest.raises(Kill):
            self.run(kill=(epoch, step), **given)
        return self

    def stored(self) -> StoredRun:
        (run,) = read_sweep(SweepPaths(self.root)).runs
        return read_run(run.paths)


@pytest.fixture
def loop(tmp_path: Path) -> Callable[..., Loop]:
    return lambda name, **given: Loop(tmp_path / name, **given)


def assert_equal(one: Loop, other: Loop) -> None:
    for first, second in zip(one.network.parameters(), other.network.parameters(), strict=True):
        assert torch.equal(first, second)
    names = ("epoch", "loss", "accuracy", "samples", "metrics", "units")
    rows = [[[getattr(each, name) for name in names] for each in side.stored().epochs] for side in (one, other)]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("killed_at", [(1, 4), (3, 3)])
def test_a_killed_loop_ends_as_if_it_had_not_been_killed(
    loop: Callable[..., Loop], within: bool, killed_at: tuple[int, int]
) -> None:
    whole = loop("whole", within=within)
    whole.run()
    loop("killed", within=within).killed(*killed_at)
    resumed = loop("killed", within=within)
    begun: list[int] = []
    resumed.every_step = lambda epoch, *_: begun.append(epoch.number)
    is_resumed = within or killed_at[0] > 1  # else it had no checkpoint
    torch.rand(7 * is_resumed)  # what a program draws before its epochs does not count
    run = resumed.run()
    assert run.is_resumed is is_resumed
    assert_equal(resumed, whole)
    left = STEPS - killed_at[1] + 1 if within else STEPS
    assert begun.count(killed_at[0]) == left, "the steps before a checkpoint are not made again"
    assert begun[0] == killed_at[0]


def test_a_finished_run_is_kept(loop: Callable[..., Loop]) -> None:
    loop("once").run()
    again = loop("once")
    before = [each.clone() for each in again.network.parameters()]
    assert again.run().record.attempt == 1
    assert all(map(torch.equal, before, again.network.parameters()))


def test_an_epoch_in_parts_tells_the_whole_truth(loop: Callable[..., Loop], let_pass: Callable[[float], None]) -> None:
    """Its times are those of both parts, without the steps that were lost, and do not count as measured."""
    options = RunOptions(checkpoint_seconds=1e-9, warmup_epochs=0, log_every=1)
    for name, kill in (("whole", None), ("killed", (2, 4)), ("killed", (2, 6)), ("killed", None)):
        side = loop(name, within=True)
        side.every_step = lambda epoch, *_: let_pass(100.0)
        side.every_epoch = lambda epoch: let_pass(7.0)
        if kill is None:
            side.run(options=options)
        else:
            side.killed(*kill, options=options)
    run = side.stored()
    first, second, third = run.epochs
    assert (first.warmup, second.warmup, third.warmup) == (False, True, False)
    assert second.epoch_seconds == pytest.approx(100 * STEPS, abs=10)
    assert second.wall_seconds == pytest.approx(100 * STEPS + 7, abs=10)
    assert third.run_seconds == pytest.approx(3 * (100 * STEPS + 7), abs=20)
    parts = [getattr(second, f"{name}_seconds") or 0.0 for name in ("data", "transfer", "compute", "tracking")]
    assert sum(parts) == pytest.approx(second.wall_seconds - 7, rel=0.01)
    assert "epoch 2 was made in parts, as the run was resumed within it; its times count as warm-up" in run.record.notes
    assert [each.last_epoch for each in run.record.earlier] == [1, 1]


def test_gradients_are_never_lost_between_accumulated_steps(loop: Callable[..., Loop]) -> None:
    sides = []
    for name, kill in (("whole", None), ("killed", (2, 4)), ("killed", None)):
        side = loop(name, within=True)
        side.accumulate = 2
        side.run() if kill is None else side.killed(*kill)
        sides.append(side)
    assert_equal(sides[-1], sides[0])


@pytest.mark.parametrize("in_state", [False, True])
def test_a_metric_that_saw_a_part_of_an_epoch_is_left_out(loop: Callable[..., Loop], in_state: bool) -> None:
    for name, kill in (("whole", None), ("killed", (2, 4)), ("killed", None)):
        side = loop(name, within=True)
        f1 = torchmetrics.classification.MulticlassF1Score(3)
        if in_state:
            f1.persistent(True)
            side.state["f1"] = f1
        side.every_step = lambda epoch, preds, labels, f1=f1: f1.update(preds, labels)
        side.every_epoch = lambda epoch, f1=f1: epoch.log(val_f1=f1)
        side.run() if kill is None else side.killed(*kill)
    run, whole = side.stored(), loop("whole").stored()
    values = [(each.metrics or {}).get("val_f1") for each in run.epochs]
    expected = [(each.metrics or {})["val_f1"] for each in whole.epochs]
    if not in_state:
        assert run.record.notes[0].endswith("; val_f1 saw only its last part and is left out: add it to `state`")
        expected[1] = None
    assert values == expected


def test_an_epoch_that_begins_with_an_evaluation_is_repeated_whole(loop: Callable[..., Loop]) -> None:
    """Otherwise the evaluation would count twice."""
    for name, kill in (("whole", None), ("killed", (2, 4)), ("killed", None)):
        side = loop(name, within=True)
        manager = RunManager(side.root, tensorboard=TensorBoardOptions(enabled=False), console=False)
        steps = []
        try:
            with manager.run({}, side.network, side.loader, state=side.state, options=side.options) as run:
                for epoch in run.epochs(2):
                    epoch.track_eval(1.0, samples=3)
                    for inputs, _ in epoch.batches(side.loader):
                        if kill == (epoch.number, len(steps) % STEPS + 1):
                            raise Kill
                        steps.append(epoch.number)
                        epoch.track(side.network(inputs).sum(), samples=len(inputs))
        except Kill:
            pass
    assert steps == [2] * STEPS
    assert side.stored().epochs[1].loss == loop("whole").stored().epochs[1].loss


class Holding:
    """An object with a state."""

    def __init__(self, state: Any = None) -> None:
        self.state = state

    def state_dict(self) -> Any:
        return {"held": self.state}

    def load_state_dict(self, state: Any) -> None:
        self.state = state["held"]


def an_optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)


REFUSED = {
    "a list": ([1], r"`state` must be a mapping of names to objects with a state, got list"),
    "the model's name": ({"model": an_optimizer()}, r"must be text other than 'model', the network's own, got 'model'"),
    "a number": ({"best": 0.5}, r"Entry 'best' of `state` must have state_dict\(\) and load_state_dict\(\), got float"),
    "a class": ({"holding": Holding}, r"Entry 'holding' .* got type"),
    "an object in a state": (
        {"holding": Holding([Path("x")])},
        r"The state of entry 'holding' of `state` must hold plain values and tensors, got pathlib\S+Path; convert it",
    ),
    "a number of NumPy": ({"holding": Holding({"best": np.float64(1.0)})}, r"got numpy\.float64; convert it"),
    "another optimizer": ({"optimizer": an_optimizer()}, r"Entry 'optimizer' of `state` must be the run's `optimizer`"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_stored_is_refused_before_anything_is_written(loop: Callable[..., Loop], case: str) -> None:
    state, message = REFUSED[case]
    side = loop("refused")
    with pytest.raises(UsageError, match=message):
        side.run(state=state)
    assert not side.root.exists()


def test_a_state_that_becomes_unloadable_is_refused_at_the_first_checkpoint(loop: Callable[..., Loop]) -> None:
    side = loop("late")
    holding = side.state["holding"] = Holding()
    side.every_epoch = lambda epoch: setattr(holding, "state", Path("x"))
    with pytest.raises(UsageError, match=r"entry 'holding' of `state` must hold plain values"):
        side.run()
    assert side.stored().record.status == "failed"


def test_a_state_needs_its_network(tmp_path: Path) -> None:
    for given in ({"state": {}}, {"options": RunOptions(keep_best="loss")}):
        with pytest.raises(UsageError, match="must come with a network, got none"):
            RunManager(tmp_path / "sweep").run({}, **given)


def truncate(path: Path, side: Loop) -> None:
    path.write_bytes(path.read_bytes()[:500])


def age(path: Path, side: Loop) -> None:
    torch.save(torch.load(path, weights_only=True) | {"version": 9}, path)


def rename(path: Path, side: Loop) -> None:
    side.state["schedule"] = side.state["scheduler"]


def nothing(path: Path, side: Loop) -> None:
    pass


UNLOADABLE = {
    "truncated": (truncate, {}, r"the checkpoint is damaged \(\w+\)"),
    "another version": (age, {}, r"the checkpoint must be a checkpoint of version 1, got 9"),
    "other entries": (rename, {}, r"`state` had the entries 'scheduler', 'optimizer', and has 'scheduler', 'sche"),
    "other shapes": (nothing, {"width": 9}, r"the checkpoint does not fit this run \(RuntimeError: .*size mismatch"),
}


@pytest.mark.parametrize("case", UNLOADABLE)
def test_a_checkpoint_that_cannot_be_loaded_is_kept_and_the_run_begins_again(
    loop: Callable[..., Loop], case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change, given, reason = UNLOADABLE[case]
    whole = loop("whole", **given)
    whole.run()
    loop("broken").killed(3, 1)
    stored = loop("broken").stored()
    again = loop("broken", **given)
    change(stored.paths.checkpoint, again)
    kept = stored.paths.checkpoint.read_bytes()
    manager = RunManager(again.root, tensorboard=TensorBoardOptions(enabled=False))
    with manager.run({"lr": 0.05}, again.network, again.loader, state=again.state, optimizer=again.optimizer) as run:
        assert not run.is_resumed and run.num_steps == 0
        assert [*run.paths.root.glob("epochs.jsonl")] == []
        run.interrupt()
    aside = stored.paths.attempts / "1"
    assert (aside / "checkpoint.pt").read_bytes() == kept
    assert read_record(type(stored.paths)(aside)) == stored.record, "what is kept is what was stored"
    assert len((aside / "epochs.jsonl").read_text().splitlines()) == 2
    (note,) = run.record.notes
    assert note.startswith("begun again from the start: the checkpoint ")
    assert note.endswith("; it is kept as attempts/1/checkpoint.pt")
    assert re.search(reason, note)
    assert f"{stored.name}: {note}" in capsys.readouterr().out
    assert (run.record.attempt, run.record.earlier, run.record.resumed_at) == (2, (), None)
    assert (stored.paths.root / "config.yaml").exists()
    final = loop("broken", **given)
    final.state = final.state | ({"schedule": final.state["scheduler"]} if case == "other entries" else {})
    final.run()
    if case != "other entries":  # there the schedule's state is stored twice, which changes nothing
        assert_equal(final, whole)


def test_the_weights_of_the_best_epoch_are_kept(loop: Callable[..., Loop]) -> None:
    """With those of the other modules; without `state` nothing else is."""
    values = {1: 0.5, 2: 0.9, 3: 0.7}
    for given in ({}, {"state": None}):
        side = loop(f"best-{len(given)}")
        copy = side.state["copy"] = nn.Linear(4, 3)
        weights = {}

        def keep(epoch: Any, side: Loop = side, weights: Any = weights, copy: Any = copy) -> None:
            weights[epoch.number] = side.network[0].weight.detach().clone()
            nn.init.constant_(copy.weight, epoch.number)
            epoch.log({"val/f1": values[epoch.number]})

        side.every_epoch = keep
        paths = side.run(options=RunOptions(keep_best="val/f1"), **given).paths
        best = torch.load(paths.best, weights_only=True)
        assert (best["best"]["value"], best["best"]["record"]["epoch"]) == (0.9, 2)
        assert torch.equal(best["model"]["0.weight"], weights[2])
        assert paths.checkpoint.exists() is ("state" not in given)
        if "state" not in given:
            assert best["copy"]["weight"].unique().tolist() == [2.0]


def test_keeping_the_best_by_a_metric_of_unknown_direction_is_refused_early(loop: Callable[..., Loop]) -> None:
    side = loop("refused")
    with pytest.raises(UsageError, match="got 'quux'"):
        side.run(options=RunOptions(keep_best="quux"))
    assert not side.root.exists()


def test_several_networks_and_objects_are_restored(loop: Callable[..., Loop]) -> None:
    for kill in ((2, 1), None):
        side = loop("objects")
        other, holding = nn.Linear(2, 2), Holding({"patience": 0, "seen": [1.5, None, "x"]})
        generator = torch.Generator().manual_seed(3)
        side.state |= {"other": other, "holding": holding, "generator": generator}
        if kill:
            weights = other.weight.detach().clone()
            holding.state["patience"] = 2
            expected = torch.Generator().manual_seed(3).get_state()
            side.killed(*kill)
        else:
            nn.init.zeros_(other.weight)
            generator.manual_seed(99)
            side.run(epochs=1)  # all of them were made
    assert torch.equal(other.weight, weights)
    assert holding.state == {"patience": 2, "seen": [1.5, None, "x"]}
    assert torch.equal(generator.get_state(), expected)
