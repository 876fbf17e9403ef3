"""In which order the driver starts the cells of a sweep, and in which it returns their results."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher

from runmanager.app.driver.program import CellGrid, Program, Storage
from runmanager.app.driver.sweep_driver import DriverOptions, SweepDriver
from runmanager.errors import ConfigurationError
from runmanager.launching.hydra_launcher import LocalLauncher
from runmanager.launching.launcher import with_traits
from runmanager.launching.plan import Cell, PlannedRun
from runmanager.records.files.paths import RunPaths, SweepPaths, folder_name
from runmanager.records.run.status import Status
from runmanager.records.settings.signature import short_signature, signature
from runmanager.records.storage.ownership import claim_run
from runmanager.records.sweep.sweep_record import read_sweep_record
from runmanager.training.options.groups import PairedOptions

RATES = (0.1, 0.2, 0.3, 0.4, 0.5)


def name_of(config: Mapping[str, Any]) -> str:
    return f"lr={config['lr']},split={config['split']}-{short_signature(signature(config))}"


class Grid(Program):
    """A program of cells that its launcher ends at once."""

    can = frozenset()

    def __init__(self, folder: Path, rates: Sequence[float], seeds: Sequence[int], *, paired: bool = False) -> None:
        configs = [{"lr": lr, "split": seed} for lr in rates for seed in seeds]
        cells = [Cell(signature(each), name_of(each), each, ()) for each in configs]
        self.grid = CellGrid(
            cells,
            {"lr": list(rates), "split": list(seeds)},
            Storage("mine", str(folder)),
            paired=PairedOptions(axis="lr") if paired else None,
            seed_names=["split"],
        )

    def count_cells(self) -> int:
        return len(self.grid.cells)

    def get_ready(self, launcher: Launcher, *, num_cells: int) -> None:
        pass

    def compose(self) -> CellGrid:
        return self.grid

    def can_continue(self, run: RunPaths) -> bool:
        return False

    def check_capacity(self, launcher: Launcher, batches: Any, *, take_turns: bool = False) -> None:
        pass

    def check(self, launcher: Launcher, to_run: Any, *, needs_all: bool, is_dry_run: bool = False) -> None:
        pass

    def hydra_overrides(self, run: PlannedRun, sweep: SweepPaths) -> list[str]:
        return [run.paths.name]


class InCalls(Launcher):
    """Another launcher of Hydra: it runs the cells in the order of the call, up to a number of them."""

    def __init__(self, grid: Grid, most: int = 100) -> None:
        self._grid, self._most = grid, most
        self.started: list[str] = []

    def setup(self, **_: Any) -> None:
        pass

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        storage = self._grid.grid.storage
        cells = {folder_name(each.name): each for each in self._grid.grid.cells}
        returns = []
        for (folder,) in job_overrides[: self._most]:
            cell = cells[folder]
            name = cell.name.rpartition("-")[0]
            self.started.append(name)
            run = SweepPaths(Path(storage.output_root) / str(storage.name)).run(folder)
            pending = PlannedRun(cell, "start", "new", run).pending_record()  # type: ignore[arg-type]
            claim_run(run, msgspec.structs.replace(pending, status=Status.FINISHED)).close()
            returns.append(JobReturn(overrides=[name], status=JobStatus.COMPLETED, _return_value=name))
        if len(job_overrides) > self._most:
            raise KeyboardInterrupt
        return returns


def drive(grid: Grid, order: str | None, *, most: int = 100) -> tuple[list[str], list[Any]]:
    """The cells in the order in which they started, and what the sweep returned."""
    launcher = InCalls(grid, most)
    returns = []
    try:
        returns = SweepDriver(grid, with_traits(launcher), DriverOptions(quiet=True, order=order)).run()
    except SystemExit as ended:
        assert (ended.code, len(launcher.started)) == (130, most)
    return launcher.started, [each.return_value for each in returns]


def stored_order(folder: Path) -> list[str]:
    record = read_sweep_record(SweepPaths(folder / "mine"))
    assert record is not None and record.seed_names == ("split",)
    runs = {cell.signature: cell.name.rpartition("-")[0] for cell in record.planned}
    return [runs[each] for each in record.starts]


def names(rates: Sequence[float], seeds: Sequence[int]) -> list[str]:
    return [f"lr={lr},split={seed}" for lr in rates for seed in seeds]


def test_cells_start_in_a_stored_random_order_within_blocks_of_a_seed(tmp_path: Path) -> None:
    started, returned = drive(Grid(tmp_path, RATES, (7, 3)), "random")
    assert returned == names(RATES, (7, 3)), "in the order of the grid"
    assert [each[-1] for each in started] == ["7"] * 5 + ["3"] * 5
    assert started != sorted(started, key=names(RATES, (7, 3)).index)
    assert started == stored_order(tmp_path)
    record = read_sweep_record(SweepPaths(tmp_path / "mine"))
    assert record is not None and [cell.name.rpartition("-")[0] for cell in record.planned] == names(RATES, (7, 3))
    again = drive(Grid(tmp_path / "again", RATES, (7, 3)), "random")
    assert again == (started, returned), "every driver draws the same order"


def test_the_order_of_the_grid_is_that_within_blocks_of_a_seed(tmp_path: Path) -> None:
    started, returned = drive(Grid(tmp_path, RATES, (7, 3)), "grid")
    assert (started, returned) == ([*names(RATES, [7]), *names(RATES, [3])], names(RATES, (7, 3)))
    assert drive(Grid(tmp_path / "one", RATES, [0]), "grid")[0] == names(RATES, [0])


def test_a_resumed_and_wider_sweep_follows_the_stored_order(tmp_path: Path) -> None:
    first, returned = drive(Grid(tmp_path, RATES, (7, 3)), "random", most=4)
    assert returned == []
    left = [each for each in stored_order(tmp_path) if each not in first]
    wider = (*RATES, 0.6, 0.7)
    started, returned = drive(Grid(tmp_path, wider, (7, 3)), "grid")
    new = names((0.6, 0.7), [7]), names((0.6, 0.7), [3])
    assert started == [left[0], *new[0], *left[1:], *new[1]]
    assert returned == [each for each in names(wider, (7, 3)) if each not in first]


def test_a_stored_sweep_without_an_order_keeps_its_own(tmp_path: Path) -> None:
    first, _ = drive(Grid(tmp_path, RATES, (7, 3)), "grid", most=3)
    file = SweepPaths(tmp_path / "mine").record
    stored = json.loads(file.read_text())
    assert stored.pop("order")
    file.write_text(json.dumps(stored))
    started, _ = drive(Grid(tmp_path, RATES, (7, 3)), "random")
    assert started == [name for name in names(RATES, (7, 3)) if name not in first]


def test_cells_that_take_turns_have_their_own_order(tmp_path: Path) -> None:
    grid = Grid(tmp_path, RATES, [0], paired=True)
    with pytest.raises(ConfigurationError, match="`--order` must be left out where cells take turns, got random"):
        SweepDriver(grid, LocalLauncher(), DriverOptions(order="random")).run()


@pytest.mark.parametrize("words", [("--order", "later"), ("hydra.sweeper.order=later",)])
def test_another_order_is_refused(command: Callable[..., Any], tmp_path: Path, words: tuple[str, ...]) -> None:
    done = command("-m", "lr=0.1,0.2", "name=mixed", *words)
    assert (done.status, done.err) == (2, "error: `--order` must be one of grid, random, got later.\n")
    assert not (tmp_path / "outputs").exists()


def test_a_real_sweep_starts_its_runs_in_the_stored_order(
    command: Callable[..., Any], sweep: Callable[[str], Any], tiny: tuple[str, ...]
) -> None:
    done = command("-m", *tiny, "epochs=1", "lr=0.1,0.2,0.3", "seed=0,1", "name=mixed", "--order", "random")
    assert done.status == 0, done.err
    record = read_sweep_record(sweep("mixed").paths)
    assert record is not None and record.order
    started = sorted(sweep("mixed").records, key=lambda each: each.started_at)
    assert [each.signature for each in started] == record.starts
    assert [each.settings["seed"] for each in started] == [0, 0, 0, 1, 1, 1]
