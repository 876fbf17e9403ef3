"""Tests of tools/sbom.py: the bill of materials names what the package needs and contains, in equal bytes each time."""

import hashlib
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
CHARTS = "runmanager/results/report/templates/echarts.js"

pytest.importorskip("cyclonedx")


def written(path: Path, wheel: Path, **variables: str) -> bytes:
    words = [sys.executable, "tools/sbom.py", str(path), "--wheel", str(wheel)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000", **variables}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return path.read_bytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sbom")
    (folder / "a.whl").write_bytes(b"a wheel")
    return folder


@pytest.fixture(scope="module")
def bill(folder: Path) -> Any:
    return json.loads(written(folder / "bill.json", folder / "a.whl"))


def test_every_requirement_is_named_with_its_version_and_licence(bill: Any) -> None:
    named = {each["name"]: each for each in bill["components"]}
    assert {"torch", "numpy", "msgspec", "hydra-core", "omegaconf", "pyyaml"} <= set(named)
    assert not {"pytest", "ruff", "lightning"} & set(named)  # extras
    assert [name for name, each in named.items() if each["version"] != metadata.version(name)] == []
    assert named["numpy"]["purl"] == f"pkg:pypi/numpy@{metadata.version('numpy')}"
    without = [name for name, each in named.items() if not each.get("licenses")]
    assert [name for name in without if not name.startswith(("nvidia-", "cuda-"))] == []
    needs = {each["ref"]: each.get("dependsOn", []) for each in bill["dependencies"]}
    assert "omegaconf" in needs["hydra-core"] and "torch" in needs["torch-runmanager"]


def test_the_contained_chart_library_has_its_version_licence_and_hash(bill: Any) -> None:
    package = bill["metadata"]["component"]
    assert package["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(b"a wheel").hexdigest()}]
    (charts,) = package["components"]
    assert charts["name"] == CHARTS
    assert charts["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256((ROOT / CHARTS).read_bytes()).hexdigest()}]
    parts = {each["name"]: each for each in charts["components"]}
    header = (ROOT / CHARTS).read_text().split(maxsplit=4)[3]
    assert parts["echarts"]["purl"] == f"pkg:npm/echarts@{header.rstrip(',')}"
    licences = {name: each["licenses"][0]["license"]["id"] for name, each in parts.items()}
    assert licences == {"echarts": "Apache-2.0", "zrender": "BSD-3-Clause", "tslib": "0BSD"}


def test_the_same_libraries_give_the_same_bytes(bill: Any, folder: Path) -> None:
    again = written(folder / "again.json", folder / "a.whl", PYTHONHASHSEED="7", TZ="Asia/Tokyo")
    assert again == (folder / "bill.json").read_bytes()
    assert bill["metadata"]["timestamp"].startswith("2023-11-14T22:13:20")
