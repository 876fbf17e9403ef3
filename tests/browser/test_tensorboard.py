"""`runmanager tensorboard` in a real browser: each tab shows the sweep's runs."""

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from playwright.sync_api import Locator, Page, expect
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from runmanager import RunManager, expand_grid

from ..processes import discard, kill_all
from .pages import OpenPage

ROOT = Path(__file__).resolve().parents[2]
SIZES = (4, 10, 20)
RUNS = tuple(f"batch_size={size}" for size in SIZES)
SWEEP = f"sweep of {len(SIZES)} runs"
FIRST_TAB = "#custom_scalars"
LIMIT_SECONDS = 60.0

expect.set_options(timeout=LIMIT_SECONDS * 1000)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of two epochs on small images."""
    folder = tmp_path_factory.mktemp("board") / "digits"
    torch.manual_seed(0)
    data = TensorDataset(torch.rand(40, 1, 8, 8), torch.randint(3, (40,)))
    manager = RunManager(folder, console=False)
    for params in expand_grid(batch_size=SIZES, lr=[0.1], device=["cpu"]):
        network = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
        loader = DataLoader(data, batch_size=params.batch_size)
        optimizer = torch.optim.SGD(network.parameters(), lr=params.lr)
        with manager.run(params, network, loader, optimizer=optimizer) as run:
            for epoch in run.epochs(2):
                for images, labels in epoch.batches(loader):
                    preds = network(images)
                    loss = F.cross_entropy(preds, labels)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    epoch.track(loss, preds, labels)
                with torch.no_grad():
                    for images, labels in epoch.eval_batches(loader):
                        preds = network(images)
                        epoch.track_eval(F.cross_entropy(preds, labels), preds, labels)
                epoch.log(f1=0.5 * epoch.number, val_f1=0.25)
    return folder


@pytest.fixture(scope="module")
def address(chromium: object, sweep: Path) -> Iterator[str]:
    """URL of the served sweep, once it is complete: the page loads it only once."""
    words = ["-c", "from runmanager.cli.main import main; main()", "tensorboard", str(sweep), "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, *words], env=environment, stdout=subprocess.PIPE, text=True)
    end = threading.Timer(4 * LIMIT_SECONDS, kill_all, [process])
    end.daemon = True
    end.start()
    try:
        assert process.stdout is not None
        found = re.search(r"(http://localhost:\d+/)(\S*)", process.stdout.readline())
        assert found is not None and found[2] == FIRST_TAB
        until = time.monotonic() + 2 * LIMIT_SECONDS
        while not is_loaded(found[1]):
            assert time.monotonic() < until
            time.sleep(0.1)
        end.cancel()
        yield found[1]
    finally:
        end.cancel()
        process.terminate()  # it deletes its temporary folder
        with suppress(subprocess.TimeoutExpired):
            process.wait(LIMIT_SECONDS)
        discard(process)


def is_loaded(address: str) -> bool:
    curves, texts = tags_of(address, "scalars"), tags_of(address, "text")
    has_curves = set(curves) == set(RUNS) and all("val/loss" in found for found in curves.values())
    return has_curves and "across_runs/results" in texts.get(SWEEP, ())


def tags_of(address: str, plugin: str) -> dict[str, list[str]]:
    """Query the tags of each run that a plugin shows."""
    with urllib.request.urlopen(f"{address}data/plugin/{plugin}/tags", timeout=LIMIT_SECONDS) as answer:
        tags: dict[str, list[str]] = json.load(answer)
    return tags


def open_tab(page: Page, tab: str, dashboard: str) -> Locator:
    page.get_by_role("tab").filter(has_text=re.compile(rf"^\s*{tab}\s*$", re.IGNORECASE)).click()
    return page.locator(dashboard)


def test_each_tab_shows_the_runs(address: str, visit: OpenPage) -> None:
    visited = visit(address)
    page = visited.page
    expect(page).to_have_title("digits")

    scalars = open_tab(page, "Scalars", "tf-scalar-dashboard")
    for run in RUNS:
        expect(scalars.get_by_text(run, exact=True).first).to_be_visible()
    for category in ("train", "val", "time", "throughput", "optim"):
        expect(scalars.get_by_text(category, exact=True).first).to_be_visible()
    expect(scalars.locator("vz-line-chart2").first).to_be_visible()

    images = open_tab(page, "Images", "tf-image-dashboard")
    for run in RUNS:
        expect(images.locator("tf-image-loader").filter(has_text=run).locator("img").first).to_be_visible()
    expect(images.locator("tf-image-loader").filter(has_text=SWEEP).locator("img").first).to_be_visible()

    texts = open_tab(page, "Text", "tf-text-dashboard")
    text_cards = texts.locator("tf-text-loader").filter(has_text=SWEEP)
    expect(text_cards.filter(has_text="across_runs/answers").get_by_text("3 runs: 3 finished.")).to_be_visible()
    expect(text_cards.filter(has_text="across_runs/results").get_by_role("row")).to_have_count(1 + len(RUNS))

    graphs = open_tab(page, "Graphs", "tf-graph-dashboard")
    expect(graphs.locator("svg#svg")).to_contain_text(re.compile("Sequential|Linear"))

    charts = open_tab(page, "Custom Scalars", "tf-custom-scalar-dashboard")
    for title in ("loss", "accuracy", "f1", "samples a second"):
        expect(charts.get_by_text(title, exact=True).first).to_be_visible()
    expect(charts.get_by_text(f"Matches ({2 * len(RUNS)})")).to_have_count(3)  # training and validation of each run
    assert not [error for error in visited.errors if "Three.js" not in error and "deprecated" not in error]


def test_the_printed_address_shows_training_beside_validation_first(address: str, visit: OpenPage) -> None:
    charts = visit(f"{address}{FIRST_TAB}").page.locator("tf-custom-scalar-dashboard")
    expect(charts.locator("vz-line-chart2").nth(1)).to_be_visible()
    for title in ("loss", "accuracy"):
        expect(charts.get_by_text(title, exact=True).first).to_be_in_viewport()


def test_hparams_sorts_by_number_and_draws_its_columns(address: str, visit: OpenPage) -> None:
    page = visit(f"{address}#hparams").page
    table = page.locator("tf-hparams-table-view")
    for column in ("batch_size", "val accuracy", "val loss", "train loss", "samples/s"):
        expect(table.get_by_text(column, exact=True).first).to_be_visible()
    expect(table.get_by_text("lr", exact=True)).to_have_count(0)  # the same in all runs
    named = table.get_by_text(re.compile("^batch_size="))
    expect(named).to_have_text(["batch_size=10", "batch_size=20", "batch_size=4"])  # by name, the default order
    choices = page.locator("tf-hparams-query-pane")
    for menu, choice in (("Sort by", "batch_size"), ("Direction", "Ascending")):
        choices.locator(f'paper-dropdown-menu[label="{menu}"]').click()
        choices.locator("paper-item").get_by_text(choice, exact=True).click()
    expect(named).to_have_text(list(RUNS))
    page.get_by_text("Parallel Coordinates View").click()
    plot = page.locator("tf-hparams-parallel-coords-plot svg")
    expect(plot.locator("g.foreground path")).to_have_count(len(RUNS))
    expect(plot.get_by_text("val accuracy")).to_be_visible()
