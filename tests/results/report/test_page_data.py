"""The data of a report's figures, and the library that draws them."""

import hashlib
import json
import re
from pathlib import Path

from runmanager.records.run.run_record import EpochRecord, Measurements
from runmanager.records.run.status import Reason, Status
from runmanager.results.compare.verdict import DIFFERENT, VERDICTS
from runmanager.results.report.page_data import encode_page_data, page_data
from runmanager.results.sweep_snapshot import SweepSnapshot

ROOT = Path(__file__).resolve().parents[3]
TEMPLATES = ROOT / "runmanager" / "results" / "report" / "templates"


def data_of(sweep):
    return json.loads(encode_page_data(page_data(SweepSnapshot.read(sweep.paths))))


def test_runs_have_their_columns_curves_and_details(sweep, timed):
    for seed in (1, 2):
        for device in ("cpu", "cuda"):
            paths = sweep.run({"lr": 0.1, "device": device, "seed": seed}, timed([9.0, 2.0, 2.0]), notes=("a note",))
    sweep.run(
        {"lr": 0.2, "device": "cpu", "seed": 1}, [], status=Status.FAILED, reason=Reason.EXCEPTION, message="</script>"
    )
    data = data_of(sweep)
    columns, runs = data["columns"], data["runs"]
    assert len(runs) == 5
    assert columns["lr"] == {"numbers": True, "setting": True, "values": [0.1, 0.1, 0.1, 0.1, 0.2]}
    assert columns["status"]["values"][-1] == "failed"
    assert columns["val_accuracy"]["values"] == [0.75, 0.75, 0.75, 0.75, None]
    assert [data["cells"]["ofRun"].count(cell) for cell in range(3)] == [2, 2, 1]
    assert data["outcome"] == "val_accuracy"
    better = {"val_loss": "min", "samples_per_second": "max", "epoch_seconds": "min", "device_name": None}
    assert {name: data["better"][name] for name in better} == better
    assert list(data["metrics"])[:2] == ["val_accuracy", "accuracy"]
    curve = data["curves"][0]
    assert {name: data["xs"][place] for name, place in curve["x"].items()} == {
        "epoch": [1, 2, 3],
        "seconds": [9.0, 11.0, 13.0],
        "samples": [1000, 2000, 3000],
    }
    assert curve["y"]["loss"] == [1.0, 0.5, 0.3333]
    details = data["details"]["runs"]
    assert [data["details"]["texts"][place] for place in details[0]["said"]] == ["a note"]
    assert details[-1]["message"] == "</script>"
    assert data["details"]["settings"] == {}
    assert paths is not None


def test_the_data_cannot_end_their_element(sweep, timed):
    sweep.run({"lr": "</script><script>alert(1)</script>"}, timed([1.0, 2.0]))
    text = encode_page_data(page_data(SweepSnapshot.read(sweep.paths)))
    assert "<" not in text
    assert json.loads(text)["columns"]["lr"]["values"] == ["</script><script>alert(1)</script>"]


def test_steps_follow_epochs_and_missing_values_stay_missing(sweep):
    epochs = [
        EpochRecord(epoch=number, loss=loss, run_seconds=1.0 * number, samples=10)
        for number, loss in ((1, 1.0), (2, None), (3, float("1e200")), (4, 0.5))
    ]
    sweep.run({"lr": 1}, epochs, measurements=Measurements(steps_per_epoch=5))
    (curve,) = (data := data_of(sweep))["curves"]
    assert data["xs"][curve["x"]["step"]] == [5, 10, 15, 20]
    assert curve["y"]["loss"] == [1.0, None, None, 0.5]


def test_long_curves_are_thinned_at_even_steps(sweep):
    epochs = [EpochRecord(epoch=number, loss=1.0 / number, val_loss=2.0 / number) for number in range(1, 40_001)]
    sweep.run({"lr": 1}, epochs)
    data = data_of(sweep)
    (curve,) = data["curves"]
    points = data["xs"][curve["x"]["epoch"]]
    assert data["curvesAreThinned"] and len(points) == data["curvePoints"] == 20_046
    assert (points[0], points[-1], len(curve["y"]["val_loss"])) == (1, 40_000, len(points))


def test_the_library_is_built_from_its_sources():
    """`make report-library` builds it."""
    built = (TEMPLATES / "echarts.js").read_text()
    digest = hashlib.sha256()
    for name in ("package.json", "package-lock.json", "echarts.js", "build.js"):
        digest.update((ROOT / "web" / name).read_bytes())
    header = re.match(r"/\*! Apache ECharts (\S+), Apache License 2\.0; built from web/ ([0-9a-f]{64}) \*/\n", built)
    assert header is not None
    assert header[2] == digest.hexdigest(), "web/ has changed: `make report-library` builds the library"
    assert json.loads((ROOT / "web" / "package.json").read_text())["devDependencies"]["echarts"] == header[1]
    assert not re.search(r"</script|<!--", built, re.IGNORECASE)
    assert "Apache License" in (TEMPLATES / "echarts.LICENSE.txt").read_text()


def test_the_lock_file_names_no_host():
    assert "resolved" not in (ROOT / "web" / "package-lock.json").read_text()


def test_the_page_gets_the_looks_of_the_verdicts_and_names_none(sweep):
    sweep.run({"lr": 0.1, "device": "cpu", "seed": 1}, [EpochRecord(epoch=1)])
    looks = data_of(sweep)["styles"]["verdicts"]
    assert list(looks) == list(VERDICTS)
    assert {verdict: look["isHollow"] for verdict, look in looks.items()} == {
        verdict: verdict not in DIFFERENT for verdict in VERDICTS
    }
    scripts = "\n".join(path.read_text() for path in (TEMPLATES / "charts").glob("*.js"))
    assert not [word for word in DIFFERENT if word != "better" and word in scripts]  # `better` is a direction too
