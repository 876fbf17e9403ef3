"""The report of a sweep whose outcome is a logged metric."""

import html
import re

import msgspec

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
