"""A sweep for another program's page: which texts and pictures it has, and that a page shows them as they are."""

import io

import pytest
from PIL import Image

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.status import Status
from runmanager.results.report.markdown_summary import MarkdownSummary, summarize_in_markdown
from runmanager.results.snapshot import SweepSnapshot


@pytest.fixture
def seen(sweep):
    """Writes runs and looks at their sweep."""

    def look(*runs, **fields) -> MarkdownSummary:
        for config in runs:
            sweep.run(config, **fields)
        return summarize_in_markdown(SweepSnapshot.read(SweepPaths(sweep.paths.root)))

    return look


def test_of_several_cells_it_has_all_texts_and_the_figures(seen):
    found = seen(*({"device": device, "batch_size": size} for device in ("cpu", "cuda") for size in (10, 20)))
    assert list(found.texts) == ["answers", "comparison", "figures", "results"]
    assert found.texts["answers"].splitlines()[-1] == "- 4 runs: 4 finished."
    assert next(iter(found.pictures)) == "speedups"
    assert all(f"**{name}**: " in found.texts["figures"] for name in found.pictures)
    for png in found.pictures.values():
        assert Image.open(io.BytesIO(png)).size[0] == 702


def test_of_one_cell_it_has_the_table_and_no_figure(seen):
    found = seen({"lr": 0.1, "seed": 0}, {"lr": 0.1, "seed": 1})
    assert list(found.texts) == ["answers", "results"] and not found.pictures
    assert "| 2 |" in found.texts["results"]  # seeds


def test_of_many_rows_it_has_the_first_and_says_where_all_are(seen, sweep):
    found = seen(*({"lr": lr} for lr in range(1, 61)))
    assert found.texts["results"].count("| finished |") == 50
    whole = f"`runmanager table {sweep.paths.root} --all` shows all."
    assert f"The first 50 of 60 rows; {whole}" in found.texts["results"]


def test_runs_without_a_result_are_rows_too(seen):
    found = seen({"lr": 1}, {"lr": 2}, epochs=[], status=Status.FAILED)
    assert found.texts["results"].count("| failed |") == 2 and not found.pictures


def test_what_markdown_would_take_for_its_own_is_written_out(seen):
    found = seen({"model._target_": "a*b*c|<i>"}, {"model._target_": "__x__"})
    assert r"model.\_target\_" in found.texts["figures"] + found.texts["answers"]
    assert r"a\*b\*c\|&lt;i>" in found.texts["results"]
