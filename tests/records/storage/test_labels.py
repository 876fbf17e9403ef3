"""Tags and notes of sweeps and runs."""

from pathlib import Path

import pytest

from runmanager.errors import UsageError
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.labels import Labels, add_tags, read_labels, remove_tags, set_note
from runmanager.text import MAX_LINE


@pytest.fixture
def sweep(tmp_path: Path) -> SweepPaths:
    return SweepPaths(tmp_path)


def test_tags_and_notes_of_a_sweep_and_of_a_run_are_kept_apart(sweep: SweepPaths) -> None:
    assert read_labels(sweep).of_sweep == Labels()
    assert add_tags(sweep, None, ("paper", "old")) == Labels(("paper", "old"))
    assert add_tags(sweep, "lr=0.1", ("best",)) == Labels(("best",))
    assert set_note(sweep, "lr=0.1", " by hand ") == Labels(("best",), "by hand")
    assert set_note(sweep, None, "second try") == Labels(("paper", "old"), "second try")
    stored = read_labels(sweep)
    assert stored.of(None) == stored.of_sweep == Labels(("paper", "old"), "second try")
    assert stored.of("lr=0.1") == Labels(("best",), "by hand") and stored.of("lr=0.2") == Labels()


def test_a_tag_is_there_once_in_the_order_of_its_first_use(sweep: SweepPaths) -> None:
    add_tags(sweep, None, ("b", "a"))
    assert add_tags(sweep, None, ("a", "c", "c")).tags == ("b", "a", "c")


def test_removed_tags_leave_the_others_and_the_note(sweep: SweepPaths) -> None:
    add_tags(sweep, "run", ("a", "b", "c"))
    set_note(sweep, "run", "why")
    assert remove_tags(sweep, "run", ("c", "a")) == read_labels(sweep).of("run") == Labels(("b",), "why")
    with pytest.raises(UsageError, match=r"^A tag to remove must be one of b, got 'a'\.$"):
        remove_tags(sweep, "run", ("b", "a"))
    assert read_labels(sweep).of("run").tags == ("b",)
    with pytest.raises(UsageError, match="must be one of none"):
        remove_tags(sweep, None, ("a",))


def test_a_run_without_labels_is_not_in_the_file(sweep: SweepPaths) -> None:
    add_tags(sweep, "run", ("a",))
    set_note(sweep, "other", "x")
    assert set_note(sweep, "other", "") == Labels()
    remove_tags(sweep, "run", ("a",))
    assert read_labels(sweep).runs == {}


@pytest.mark.parametrize("note", ["two\nlines", "\x1b[31m", "x" * (MAX_LINE + 1), "x\n" * MAX_LINE])
def test_a_note_is_one_line_that_can_be_printed(sweep: SweepPaths, note: str) -> None:
    with pytest.raises(UsageError, match=f"`TEXT` must be a line of at most {MAX_LINE:,} characters"):
        set_note(sweep, None, note)
    assert set_note(sweep, None, "x" * MAX_LINE).note == "x" * MAX_LINE


@pytest.mark.parametrize("tag", ["", " a", "a ", "a,b", "a\tb", "x" * (MAX_LINE + 1)])
def test_a_tag_is_a_word_without_commas(sweep: SweepPaths, tag: str) -> None:
    with pytest.raises(UsageError, match="`TAG` must be a word without commas") as refused:
        add_tags(sweep, None, ("fine", tag, ","))
    assert len(str(refused.value).splitlines()) == 2, "all faults together"
    assert not sweep.labels.exists()
    assert add_tags(sweep, None, ("x" * MAX_LINE,)).tags == ("x" * MAX_LINE,)


def test_labels_of_two_sweeps_are_joined() -> None:
    joined = Labels(("a", "b"), "one").with_more(Labels(("b", "c"), "two"))
    assert joined == Labels(("a", "b", "c"), "one; two")
    assert Labels(("a",)).with_more(Labels(note="two")) == Labels(("a",), "two")
