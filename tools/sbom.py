"""Write the bill of materials of the package (CycloneDX, JSON): what it needs here, and what it contains of others.

python tools/sbom.py dist/sbom.cdx.json --wheel dist/torch_runmanager-0.1.0-py3-none-any.whl

The libraries are those that are installed with the package, without extras; `make sbom` installs the pinned ones. The
same libraries give the same bytes, with SOURCE_DATE_EPOCH as the time.
"""

import argparse
import base64
import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "torch-runmanager"
CHARTS = Path("runmanager/results/report/templates/echarts.js")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="the file to write")
    parser.add_argument("--wheel", type=Path, help="the wheel whose hash the package gets")
    options = parser.parse_args()
    options.path.parent.mkdir(parents=True, exist_ok=True)
    text = bill_of_materials(options.wheel)
    options.path.write_text(text)
    print(f"{options.path}: {len(json.loads(text)['components'])} libraries")


def bill_of_materials(wheel: Path | None = None) -> str:
    """Return the document; without a wheel, the package has no hash."""
    requirements = _requirements(PACKAGE)
    package = _library(PACKAGE, ComponentType.APPLICATION)
    package.components.add(_charts())
    if wheel is not None:
        package.hashes.add(HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(wheel.read_bytes()).hexdigest()))
    libraries = {name: _library(name) for name in requirements if name != PACKAGE}
    content = " ".join(sorted(str(each.purl) for each in (package, *libraries.values())))
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, content), components=libraries.values())
    bom.metadata = BomMetaData(component=package, timestamp=_time())
    for name, needed in requirements.items():
        bom.register_dependency(libraries.get(name, package), [libraries[each] for each in needed])
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2) + "\n"


def _requirements(name: str) -> dict[str, list[str]]:
    """Return what each library needs that is installed with `name`, by canonical names; optional ones are left out."""
    found: dict[str, list[str]] = {}
    waiting: list[tuple[str, Sequence[str]]] = [(name, ())]
    seen = set()
    while waiting:
        each, extras = waiting.pop()
        if (each, tuple(extras)) in seen:
            continue
        seen.add((each, tuple(extras)))
        needed = [need for need in map(Requirement, metadata.requires(each) or ()) if _applies(need, extras)]
        names = {canonicalize_name(need.name) for need in needed} - {each}
        found[each] = sorted({*found.get(each, ()), *names})
        waiting += [(canonicalize_name(need.name), sorted(need.extras)) for need in needed]
    return found


def _applies(need: Requirement, extras: Iterable[str]) -> bool:
    return need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *extras))


def _library(name: str, kind: ComponentType = ComponentType.LIBRARY) -> Component:
    version, licence = metadata.version(name), _licence(metadata.metadata(name))
    return Component(
        name=name,
        version=version,
        type=kind,
        bom_ref=name,
        purl=PackageURL("pypi", None, name, version),
        licenses=[LicenseFactory().make_from_string(licence)] if licence else [],
    )


def _licence(of: metadata.PackageMetadata) -> str:
    """Return a licence as its metadata has it: an SPDX expression, a short name, or the names of its classifiers."""
    named = of.get("License") or ""
    if "\n" in named or len(named) > 60:
        named = ""
    kinds = [each.rpartition(" :: ")[2] for each in of.get_all("Classifier") or () if each.startswith("License ::")]
    return of.get("License-Expression") or named or ", ".join(kinds)


def _charts() -> Component:
    """Return the chart library that the package contains: a built file, with the packages that it was built from."""
    content = (ROOT / CHARTS).read_bytes()
    header = re.match(rb"/\*! Apache ECharts (\S+), ", content)
    locked = json.loads((ROOT / "web" / "package-lock.json").read_text())["packages"]
    parts = ("echarts", *locked["node_modules/echarts"]["dependencies"])
    if header is None or header[1].decode() != locked["node_modules/echarts"]["version"]:
        raise RuntimeError(f"{CHARTS} must be built from web/package-lock.json; run `make report-library`.")
    return Component(
        name=str(CHARTS),
        type=ComponentType.FILE,
        bom_ref="charts",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(content).hexdigest())],
        components=[_script(name, locked[f"node_modules/{name}"]) for name in parts],
    )


def _script(name: str, locked: dict[str, str]) -> Component:
    hashed = base64.b64decode(locked["integrity"].removeprefix("sha512-")).hex()
    return Component(
        name=name,
        version=locked["version"],
        bom_ref=f"charts {name}",
        purl=PackageURL("npm", None, name, locked["version"]),
        licenses=[LicenseFactory().make_from_string(locked["license"])],
        hashes=[HashType(alg=HashAlgorithm.SHA_512, content=hashed)],
    )


def _time() -> datetime:
    return datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)


if __name__ == "__main__":
    main()
