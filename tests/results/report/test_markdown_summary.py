"""The Markdown summary of a sweep: its texts, its pictures, and escaping."""

import io

import pytest
from PIL import Image

from runmanager.records.files.paths import SweepPaths
from runmanager.records.run.status import Status
from runmanager.results.report.markdown_summary import MarkdownSummary, summarize_in_markdown
from runmanager.results.sweep_snapshot import SweepSnapshot


@pytest.fixture
def summarize(sweep):
    """A function that writes runs and summarizes their sweep."""

    def summary(*runs, **fields) -> MarkdownSummary:
        for config in runs:
            sweep.run(config, **fields)
        return summarize_in_markdown(SweepSnapshot.read(SweepPaths(sweep.paths.root)))

    return summary


def test_several_cells_have_all_texts_and_figures(summarize):
    found = summarize(*({"device": device, "batch_size": size} for device in ("cpu", "cuda") for size in (10, 20)))
    assert list(found.texts) == ["answers", "comparison", "figures", "results"]
    assert found.texts["answers"].splitlines()[-1] == "- 4 runs: 4 finished."
    assert next(iter(found.pictures)) == "speedups"
    assert all(f"**{name}**: " in found.texts["figures"] for name in found.pictures)
    for png in found.pictures.values():
        assert Image.open(io.BytesIO(png)).size[0] == 702


def test_a_single_cell_has_the_table_but_no_figures(summarize):
    found = summarize({"lr": 0.1, "seed": 0}, {"lr": 0.1, "seed": 1})
    assert list(found.texts) == ["answers", "results"] and not found.pictures
    assert "| 2 |" in found.texts["results"]  # seeds


def test_a_long_table_has_its_first_rows_and_the_command_for_all(summarize, sweep):
    found = summarize(*({"lr": lr} for lr in range(1, 61)))
    assert found.texts["results"].count("| finished |") == 50
    command = f"`runmanager table {sweep.paths.root} --all` shows all."
    assert f"The first 50 of 60 rows; {command}" in found.texts["results"]


def test_runs_without_a_result_have_rows(summarize):
    found = summarize({"lr": 1}, {"lr": 2}, epochs=[], status=Status.FAILED)
    assert found.texts["results"].count("| failed |") == 2 and not found.pictures


def test_markdown_syntax_in_settings_is_escaped(summarize):
    found = summarize({"model._target_": "a*b*c|<i>"}, {"model._target_": "__x__"})
    assert r"model.\_target\_" in found.texts["figures"] + found.texts["answers"]
    assert r"a\*b\*c\|&lt;i>" in found.texts["results"]
