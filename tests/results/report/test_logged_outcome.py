"""The report of a sweep whose outcome is a logged metric."""

import html
import re

import msgspec

from runmanager.records.sweep.sweep_record import SweepCommand, write_cells
from runmanager.results.result_files import write_tables

COLUMNS = dict.fromkeys(("loss", "accuracy", "val_loss", "val_accuracy"))


def test_answer_figures_and_next_steps_are_by_the_logged_outcome(sweep, timed):
    for lr in (1, 2, 3):
        for size in (10, 20):
            metrics = {"metrics": {"zeal": 1.0, "val/ppl": 8.0 / lr + size}}
            epochs = [msgspec.structs.replace(each, **COLUMNS, **metrics) for each in timed([1.0] * 6)]
            sweep.run({"lr": lr, "batch_size": size}, epochs)
    write_tables(sweep.paths)
    page = html.unescape(re.sub("<[^>]*>", "", sweep.paths.report.read_text()))
    assert "The best val/ppl is 12.67 with lr=3, batch_size=10." in page
    assert "Learning curves: val/ppl by epoch." in page
    assert "through its settings to its samples per second and val/ppl" in page
    assert f"runmanager best {sweep.paths.root} --metric val/ppl prints" in page


def test_a_metric_that_a_command_asks_for_comes_first(sweep, timed):
    for lr in (1, 2):
        epochs = [msgspec.structs.replace(each, metrics={"zeal": float(lr)}) for each in timed([1.0] * 6)]
        sweep.run({"lr": lr}, epochs, better={"zeal": "max"})
    write_cells(sweep.paths, [], SweepCommand(("train",), axes={"lr": [1, 2]}, metric="zeal"))
    write_cells(sweep.paths, [], SweepCommand(("train", "again"), axes={}))  # it asks for none
    write_tables(sweep.paths)
    text = sweep.paths.report.read_text()
    (table,) = re.findall(r'<section id="results".*?</section>', text, re.DOTALL)
    best_first = re.findall(r'<td[^>]*data-value="([12])\.0"', table)
    assert best_first == sorted(best_first, reverse=True) and len(set(best_first)) == 2
    page = html.unescape(re.sub("<[^>]*>", "", text))
    assert "The best zeal is 2" in page and "Learning curves: zeal by epoch." in page
    assert "The best val_accuracy" not in page
