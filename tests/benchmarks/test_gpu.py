"""GPU measurements: parts are independent, a rehearsal is marked, and the page shows the results."""

import itertools
import os
import re
import subprocess
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks import gpu_meters, gpu_profile
from benchmarks.gpu_meters import step_seconds
from benchmarks.gpu_needs import lacking
from benchmarks.gpu_page import GpuResults, page, write_page
from benchmarks.gpu_profile import Span, busy_seconds
from benchmarks.mnist_files import MnistFiles
from runmanager.errors import UsageError
from runmanager.tracking.monitoring.device_meter import Reading

from ..gpu.test_sharing import output

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu.sh"
REHEARSED = {"DEVICE": "cpu", "SMALL": "1"}


def run_script(results: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script with these variables; PYTHON `true` always succeeds."""
    environment = {**os.environ, "WHEELS": "", **variables}
    return subprocess.run([SCRIPT, results], env=environment, capture_output=True, text=True, timeout=120)


def summary(results: Path) -> dict[str, str]:
    lines = [line.split("\t") for line in (results / "summary.tsv").read_text().splitlines()]
    assert lines[0] == ["part", "seconds", "ended"]
    return {part: ended for part, _, ended in lines[1:]}


@pytest.mark.parametrize(
    ("variables", "status", "ended"),
    [
        ({"PYTHON": "true"}, 0, "ok"),
        ({"PYTHON": "fails"}, 1, "status 1"),
        ({"PYTHON": "true", "SECONDS_IN_ALL": "0"}, 1, "not started: out of time"),
    ],
)
def test_each_part_is_summarised_and_archived(
    tmp_path: Path, variables: dict[str, str], status: int, ended: str
) -> None:
    if variables["PYTHON"] == "fails":
        variables = {**variables, "PYTHON": str(python(tmp_path, "*gpu_needs*) exit 0;; *) exit 1;;"))}
    results = tmp_path / "results"
    done = run_script(results, PARTS="data tutorial", **REHEARSED, **variables)
    assert done.returncode == status, done.stderr
    assert summary(results) == {"data": ended, "tutorial": ended}
    assert sorted(path.name for path in results.iterdir()) == ["gpu-results.tar.gz", "summary.tsv"]
    with tarfile.open(results / "gpu-results.tar.gz") as archive:
        names = archive.getnames()
    assert "gpu-results/REHEARSAL" in names
    assert len([name for name in names if name.startswith("gpu-results/summaries/")]) == 1
    assert ("gpu-results/said/data.txt" in names) == ("SECONDS_IN_ALL" not in variables)


def python(folder: Path, cases: str) -> Path:
    """Make a stand-in for Python that decides by its arguments."""
    made = folder / "python"
    made.write_text(f'#!/bin/sh\ncase "$*" in {cases} esac\n')
    made.chmod(0o755)
    return made


def test_the_documents_name_tests_and_parts_that_exist() -> None:
    rows = (ROOT / "docs" / "benchmarks.md").read_text().partition("## On a GPU")[2].splitlines()
    questions, shown = (
        [row.split("|") for row in rows if row.startswith("| ") and row.count("|") == columns] for columns in (3, 5)
    )
    for _, _, parts, _ in questions[2:]:
        assert all(f"\npart {name} " in SCRIPT.read_text() for name in re.findall("`(.*?)`", parts)), parts
    for _, _, tests, *_ in shown[2:]:
        path, *names = re.findall("`(.*?)`", tests)
        assert names and all(f"def {name}(" in (ROOT / path).read_text() for name in names), tests
    assert len(questions) > 10 and len(shown) > 10


def test_the_same_command_goes_on_with_what_has_not_ended_well(tmp_path: Path) -> None:
    results = tmp_path / "results"
    first = str(python(tmp_path, "*tutorial_epoch*) exit 1;; *) exit 0;;"))
    assert run_script(results, PYTHON=first, **REHEARSED).returncode == 1
    assert [part for part, ended in summary(results).items() if ended != "ok"] == ["tutorial"]
    assert run_script(results, PYTHON="true", **REHEARSED).returncode == 0
    assert summary(results) == dict.fromkeys(("data", "ceilings", "tutorial"), "ok")
    with tarfile.open(results / "gpu-results.tar.gz") as archive:
        assert "gpu-results/said/devices.txt" in archive.getnames()  # of the first call
        assert len([name for name in archive.getnames() if "/summaries/" in name]) == 2


def test_a_part_starts_only_if_its_time_is_left(tmp_path: Path) -> None:
    run_script(tmp_path, PYTHON="true", SECONDS_IN_ALL="30", PARTS="data tutorial", **REHEARSED)
    assert summary(tmp_path) == {"data": "ok", "tutorial": "not started: out of time"}


def test_programs_of_the_checks_find_the_unpacked_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "carried.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    assert output(tmp_path, "import carried, runmanager; print(carried.__name__)") == "carried\n"


def test_what_the_machine_lacks_is_said_before_anything_runs() -> None:
    found = list(lacking(["pytest>=8", "pytest>=900", "no-such-package>=1", "absent; python_version < '3'"]))
    assert [each.partition(" (")[0] for each in found] == ["pytest>=900", "no-such-package>=1"]
    assert found[1].endswith("(none)")


def test_the_steps_of_a_counter_are_those_between_two_changes() -> None:
    values, times = iter([1, 1, 2, 2, 2, 3, 4]), iter(range(100))
    assert step_seconds(lambda: next(values), until=6, now=lambda: next(times)) == [3, 1]


def test_the_meters_are_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ticks = itertools.count()
    energy = SimpleNamespace(joules=lambda: float(next(ticks) // 10))
    reading = Reading(clock_hertz=1.98e9)
    meter = SimpleNamespace(energy=energy, read=lambda own: reading)
    monkeypatch.setattr(gpu_meters, "open_meter", lambda device: meter)
    monkeypatch.setattr(gpu_meters, "_SECONDS", 0.01)
    monkeypatch.setattr(gpu_meters, "_SIDE", 8)
    monkeypatch.setattr(torch, "device", lambda *_: "cpu")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    gpu_meters.main()
    lines = capsys.readouterr().out.splitlines()
    assert "ms, at most" in lines[2] and lines[4] == "| processes on the GPU | unknown |"
    assert lines[5] == "| the clock after a second of rest | 1,980 MHz, then 1,980 MHz within 0 ms |"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"DEVICE": "cpu", "SMALL": ""}, "DEVICE must be cuda, or a rehearsal with SMALL=1, got cpu."),
        ({**REHEARSED, "PARTS": "data lunch"}, "PARTS must be of "),
        ({**REHEARSED, "PYTHON": "false", "WHEELS": "nowhere"}, "the wheels in nowhere could not be unpacked."),
        ({**REHEARSED, "PYTHON": "no-python"}, ""),
    ],
)
def test_invalid_settings_are_rejected_before_anything_runs(
    tmp_path: Path, variables: dict[str, str], message: str
) -> None:
    done = run_script(tmp_path, **variables)
    assert done.returncode == 2 and message in done.stderr and (not message or done.stderr.startswith("error: "))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Results of two runs of the script: finished parts, some only the second time, one cut off, others not started."""
    folder = tmp_path / "gpu-results"
    (folder / "sweeps" / "epoch").mkdir(parents=True)
    (folder / "tables").mkdir()
    (folder / "said").mkdir()
    (folder / "summaries").mkdir()
    for started_at, lines in {
        1000: ("checks\t9\tok", "epoch\t20\tstatus 1", "tutorial\t30\tok"),
        2000: ("epoch\t20\tok", "crossover\t70\tcut off after 70 s", "tutorial\t0\tnot started: out of time"),
    }.items():
        (folder / "summaries" / f"{started_at}.tsv").write_text("\n".join(["part\tseconds\tended", *lines, ""]))
    (folder / "machine.txt").write_text("Some GPU, torch 2.11\n")
    (folder / "commit.txt").write_text("0123456789abcdef\n")
    (folder / "said" / "checks.txt").write_text("....\n5 passed, 1 skipped in 9.00s\n")
    (folder / "sweeps" / "epoch" / "results.csv").write_text(
        "run,graphs,precision,compile,epoch_seconds\na,False,fp32,False,0.05\nb,True,fp32,False,0.012\n"
        "c,True,bf16,False,0.001\nd,True,fp32,True,0.002\n"
    )
    (folder / "sweeps" / "epoch" / "report.html").write_text("large")
    (folder / "tables" / "tutorial.md").write_text(
        "| what | ours | other | ratio (95% interval) | rounds | budget | met |\n"
        "| the tutorial's / ours | 10 ms | 1 s | 100 (98 to 102) | 5 | at least 50 | yes |\n"
    )
    (folder / "tables" / "crossover-1.md").write_text("cuda overtakes cpu at num_parameters = 5 [4, 6].\n")
    return folder


def test_page_shows_goals_and_missing_parts(results: Path) -> None:
    text = page(GpuResults(results))
    assert "on Some GPU, torch 2.11, on an unknown day, from commit `0123456789ab`" in text
    assert "| the tutorial's / ours | 100 (98 to 102) | at least 50 | yes |" in text
    name = "the CNN's epoch at batch size 1,000, steps captured"
    assert [line for line in text.splitlines() if line.startswith(f"| {name}")] == [
        f"| {name}, fp32 | 12 ms | at most 10 ms | no |",
        f"| {name}, bf16 | 1 ms | at most 10 ms | yes |",
        f"| {name}, fp32, compiled | 2 ms | at most 10 ms | yes |",
    ]
    assert "| What tracking adds | not measured | - | - |" in text
    assert "`tests/gpu`: 5 passed, 1 skipped in 9.00s." in text
    assert text.count("cuda overtakes cpu at num_parameters = 5 [4, 6].") == 2
    assert text.count("This part ended early") == 1
    assert "This part ended early (cut off after 70 s)" in text and "This part was not run." in text
    assert "Rehearsal" not in text and "rehearsal" not in text


@pytest.mark.parametrize(
    ("ended", "output", "expected"),
    [
        (
            "ok",
            "tests/gpu/test_a.py::test_one PASSED [50%]\n==== 31 passed in 20.00s ====\n"
            "[gw1] [50%] FAILED tests/gpu/test_b.py::test_two\nFAILED tests/gpu/test_b.py::test_two - assert 1 == 2\n"
            "== 1 failed, 27 passed, 2 warnings in 61.5s (0:01:01) ==\n",
            [
                "`tests/gpu`: 31 passed in 20.00s; 1 failed, 27 passed, 2 warnings in 61.5s.",
                "- tests/gpu/test_b.py::test_two",
            ],
        ),
        (
            "cut off after 9 s",
            "tests/gpu/test_a.py::test_one PASSED [50%]\ntests/gpu/test_a.py::test_two ",
            ["`tests/gpu`: cut off after 9 s, when 1 had passed and 0 had failed."],
        ),
        ("not started: out of time", "", ["`tests/gpu`: not started: out of time."]),
    ],
)
def test_page_counts_checks_and_names_failures(results: Path, ended: str, output: str, expected: list[str]) -> None:
    (results / "summaries" / "3000.tsv").write_text(f"part\tseconds\tended\nchecks\t9\t{ended}\n")
    (results / "summaries" / "1000.tsv").unlink()
    (results / "said" / "checks.txt").write_text(output)
    lines = page(GpuResults(results)).splitlines()
    begin = lines.index("## Checks") + 2
    assert [line for line in lines[begin : lines.index("## GPU and CPU compared")] if line] == expected


def test_rehearsal_is_never_written_as_gpu_results(results: Path, tmp_path: Path) -> None:
    path = tmp_path / "docs" / "gpu.md"
    path.parent.mkdir()
    write_page(GpuResults(results), path)
    assert path.read_text() == page(GpuResults(results))
    assert [str(each.relative_to(path.parent)) for each in path.parent.rglob("*.*")] == [
        "gpu.md",
        "gpu/epoch/results.csv",
    ]
    path.unlink()
    (results / "REHEARSAL").write_text("This was a rehearsal on cpu.")
    assert "**This was a rehearsal on cpu.**" in page(GpuResults(results))
    with pytest.raises(UsageError, match="must come from a GPU, got a rehearsal"):
        write_page(GpuResults(results), path)
    assert not path.exists()
    with pytest.raises(UsageError, match=r"unpack gpu-results\.tar\.gz"):
        GpuResults(tmp_path)


def test_device_is_busy_while_any_span_is_active() -> None:
    spans = [Span("b", 5, 20), Span("a", 0, 10), Span("within", 6, 7), Span("later", 30, 40)]
    assert busy_seconds(spans) == pytest.approx(30e-6)
    assert busy_seconds([]) == 0


def test_an_epoch_is_profiled(
    few_images: MnistFiles, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["gpu_profile", "--device", "cpu", "--data", str(few_images.root)])
    gpu_profile.main()
    output = capsys.readouterr().out
    assert output.count("| `epoch_seconds`, median of ") == 2
    assert "### Captured steps" in output and "| kernel | calls | total seconds | share |" in output
    assert "convolution" in output
