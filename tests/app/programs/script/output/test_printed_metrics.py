"""The points of printed metrics in the run's event file, across attempts and on a disk without room."""

from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from runmanager.app.programs.script.output.printed_metrics import PrintedMetrics
from runmanager.app.programs.script.output.scalar_pattern import parse_scalars
from runmanager.records.files.paths import RunPaths
from runmanager.results.program_files.folder_metrics import metrics_by_step
from runmanager.results.tfevents.reader import read_event_files

PATTERNS = parse_scalars([r"loss=loss (\S+)", r"rate=rate (\S+)"])


def printed(folder: Path, text: str, *, logs_itself: bool = False) -> PrintedMetrics:
    """What a script that prints `text` leaves in its run folder."""
    metrics = PrintedMetrics(PATTERNS, RunPaths(folder), logs_itself=logs_itself)
    metrics.scanners["stdout"](text.encode())
    metrics.close()
    return metrics


def series(folder: Path, name: str = "loss") -> dict[int, float]:
    (file,) = folder.glob("events.out.tfevents.*")
    found = read_event_files([file])
    assert not found.damage
    return dict(zip(found.scalars[name].steps, found.scalars[name].values, strict=True))


def test_a_resumed_run_continues_its_series_after_a_torn_record(tmp_path: Path) -> None:
    first = printed(tmp_path, "loss 3\nloss nan\nloss inf")
    assert first.metrics() == {"loss": None} and first.num_points == 3
    assert first.notes() == ["--scalar rate: nothing that the script printed matches"]
    (file,) = tmp_path.glob("events.*")
    with file.open("ab") as events:
        events.write(b"half a record")
    again = printed(tmp_path, "loss 2\nrate slow\nloss 1\n")
    assert list(series(tmp_path).items())[-2:] == [(4, 2.0), (5, 1.0)]
    assert again.metrics() == {"loss": 1.0}
    assert again.notes() == ["--scalar rate: `rate slow` is not a number, and is left out"]


def test_a_number_that_an_expression_reads_has_no_other_name(tmp_path: Path) -> None:
    patterns = parse_scalars([r"val/acc=Accuracy: (\d+)/(\d+)"])
    metrics = PrintedMetrics(patterns, RunPaths(tmp_path))
    metrics.scanners["stdout"](
        b"Test set: Loss: 0.5, Accuracy: 9/12 (75%)\nTest set: Loss: 0.25, Accuracy: 8/8 (100%)\n"
    )
    metrics.close()
    assert (metrics.metrics(), metrics.unasked()) == ({"val/acc": 1.0}, {"Test Loss": 0.25})


def test_a_long_series_keeps_a_small_file_and_its_last_point(tmp_path: Path) -> None:
    metrics = PrintedMetrics([], RunPaths(tmp_path))
    for begin in range(0, 200_000, 1000):
        lines = (f"step {n} train loss: {1 / (n + 1):.5f} lr 0.1\n" for n in range(begin, begin + 1000))
        metrics.scanners["stdout"]("".join(lines).encode())
    metrics.close()
    (file,) = tmp_path.glob("events.out.tfevents.*")
    assert metrics.num_points == 200_000 and file.stat().st_size < 2_000_000
    steps = list(series(tmp_path, "train loss"))
    assert steps[:512] == list(range(1, 513)) and steps[-1] == 200_000
    assert metrics.unasked() == {"train loss": 1e-5}


def test_the_metric_that_ranks_cells_comes_first(tmp_path: Path) -> None:
    metrics = PrintedMetrics(PATTERNS, RunPaths(tmp_path), metric="rate")
    metrics.scanners["stderr"](b"loss 3 rate 5\n")
    metrics.close()
    assert list(metrics.metrics().items()) == [("rate", 5.0), ("loss", 3.0)]


def test_the_event_file_of_a_script_that_logs_is_left_to_it(tmp_path: Path) -> None:
    printed(tmp_path, "loss 3\n", logs_itself=True)
    assert not list(tmp_path.glob("events.*")) and series(tmp_path / "printed") == {1: 3.0}


def test_an_event_file_that_the_script_writes_is_not_written_to(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path, filename_suffix=".own") as own:  # of another process
        own.add_scalar("own", 1.0, 1)
        own.flush()
        (theirs,) = tmp_path.glob("events.*")
        before = theirs.read_bytes()
        printed(tmp_path, "loss 3\n")
        printed(tmp_path, "loss 2\n")
        assert theirs.read_bytes() == before
    assert metrics_by_step(RunPaths(tmp_path), {"loss": "printed"}) == {"loss": {1: 3.0, 2: 2.0}}
    assert metrics_by_step(RunPaths(tmp_path), {"own": "event file"}) == {"own": {1: 1.0}}


def test_a_folder_that_takes_no_file_costs_the_series_only(tmp_path: Path) -> None:
    metrics = printed(tmp_path / "missing", "loss 3\nloss 2\n")
    assert metrics.metrics() == {"loss": 2.0}
    assert "lacks the end of the series" in metrics.notes()[-1]


def test_a_percentage_is_a_number_and_what_is_none_does_not_pass_in_silence(tmp_path: Path) -> None:
    metrics = printed(tmp_path, "loss 0.9\nrate 4\nloss 0.3%\nrate fast\n")
    assert metrics.metrics() == {"loss": 0.003, "rate": 4.0}
    assert metrics.notes() == [
        "--scalar rate: `rate fast` is not a number, and is left out; the last number that was printed counts"
    ]
