"""Tests of packaging: complete installations, set-up commands that run once, and light imports."""

import os
import shutil
import stat
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

import runmanager

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGED = ("pyproject.toml", "README.md", "LICENSE", ".gitignore", "runmanager", "conf")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources of a wheel, so that building writes nothing to the repository."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in PACKAGED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / name)
    return folder


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> Path:
    return build_wheel(checkout)


def build_wheel(folder: Path, **variables: str) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
        cwd=folder,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000", **variables},
        check=True,
        timeout=300,
    )
    (found,) = (folder / "dist").glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked wheel, as an installation puts it on the path."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def python(code: str, *, path: Path = ROOT, folder: Path | None = None) -> str:
    environment = {**os.environ, "PYTHONPATH": str(path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_wheel_contains_configuration_templates_and_types(installed: Path) -> None:
    package = installed / "runmanager"
    assert (package / "py.typed").exists()
    for source in ("conf/**/*.yaml", "runmanager/**/*.py", "runmanager/results/report/templates/*.html"):
        files = [file.relative_to(ROOT) for file in ROOT.glob(source)]
        assert files, f"nothing matches {source}"
        missing = [file for file in files if not _in_wheel(installed, file).exists()]
        assert missing == []
    assert (package / "conf" / "config.yaml").exists()


def _in_wheel(installed: Path, file: Path) -> Path:
    """Where the wheel has a file of the repository: Hydra's namespace package is next to ours."""
    plugins = Path("runmanager/plugins")
    if file.is_relative_to(plugins):
        return installed / file.relative_to(plugins)
    return installed / "runmanager" / str(file).removeprefix("runmanager/")


def test_every_hydra_application_finds_the_plugins_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    code = (
        "from hydra.core.plugins import Plugins; import hydra_plugins.runmanager;"
        "found = [each for each in Plugins.instance().discover() if each.__module__ == 'hydra_plugins.runmanager'];"
        "print(hydra_plugins.runmanager.__file__, *sorted(each.__name__ for each in found))"
    )
    file, *names = python(code, path=installed, folder=tmp_path).split()
    assert Path(file).is_relative_to(installed)
    assert names == ["ApplicationSweeper", "LocalLauncher", "RayLauncher", "SlurmLauncher"]


def test_wheel_contains_nothing_else(installed: Path) -> None:
    version = runmanager.__version__
    assert {entry.name for entry in installed.iterdir()} == {
        "hydra_plugins",
        "runmanager",
        f"torch_runmanager-{version}.dist-info",
    }


def test_wheels_of_two_copies_have_equal_bytes(wheel: Path, checkout: Path, tmp_path: Path) -> None:
    """The other copy has another folder, later times, other permissions, and its strings have other hashes."""
    other = tmp_path / "elsewhere" / "sources"
    shutil.copytree(checkout, other, ignore=shutil.ignore_patterns("dist", "editable"))
    for path in other.rglob("*"):
        path.chmod(path.stat().st_mode | stat.S_IWGRP | stat.S_IWOTH)
        os.utime(path, (2_000_000_000, 2_000_000_000))
    rebuilt = build_wheel(other, PYTHONHASHSEED="1", TZ="Asia/Tokyo", LC_ALL="C")
    assert (rebuilt.name, rebuilt.read_bytes()) == (wheel.name, wheel.read_bytes())
    with zipfile.ZipFile(rebuilt) as archive:
        assert {each.date_time for each in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}


def test_wheel_names_command_licence_and_version(installed: Path) -> None:
    (info,) = installed.glob("*.dist-info")
    assert "runmanager = runmanager.cli.main:main" in (info / "entry_points.txt").read_text()
    metadata = (info / "METADATA").read_text()
    assert f"Version: {runmanager.__version__}\n" in metadata
    assert "License-Expression: Apache-2.0\n" in metadata
    assert "Apache License" in (info / "licenses" / "LICENSE").read_text()


def test_installed_package_composes_its_configuration_from_any_folder(installed: Path, tmp_path: Path) -> None:
    code = "import sys; from runmanager.cli.main import run_command; sys.exit(run_command(['run', '--cfg', 'job']))"
    assert "batch_size: 1000" in python(code, path=installed, folder=tmp_path)


def test_editable_install_copies_no_file(checkout: Path) -> None:
    build = "from hatchling.build import build_editable; print(build_editable('editable'))"
    (checkout / "editable").mkdir()
    name = python(build, folder=checkout).splitlines()[-1]
    with zipfile.ZipFile(checkout / "editable" / name) as archive:
        files = [file for file in archive.namelist() if ".dist-info/" not in file]
        assert [Path(file).suffix for file in files] == [".pth"]
        assert archive.read(files[0]).decode().split() == [str(checkout), f"{checkout}/runmanager/plugins"]


@pytest.mark.parametrize("name", runmanager.__all__)
def test_public_name_exists(name: str) -> None:
    assert getattr(runmanager, name) is not None
    assert name in dir(runmanager)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'RunManger'"):
        _ = runmanager.RunManger


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import runmanager", ["torch", "pandas", "hydra", "msgspec", "numpy"]),
        ("from runmanager import expand_grid, RunBuilder", ["torch", "pandas", "hydra"]),
        (
            "from runmanager import RunOptions, EarlyStopOptions, UsageError, define_metric",
            ["torch", "pandas", "hydra"],
        ),
        ("import runmanager.cli.main", ["torch", "pandas", "hydra", "matplotlib", "numpy", "tensorboard"]),
        ("from runmanager import Sweep", ["torch", "hydra", "matplotlib", "pandas"]),
    ],
)
def test_import_stays_light(statement: str, absent: list[str]) -> None:
    loaded = python(f"{statement}; import sys; print(*[name for name in {absent} if name in sys.modules])")
    assert loaded == ""


def of_python(version: str, lines: Iterable[str]) -> list[Requirement]:
    required = map(Requirement, lines)
    return [each for each in required if each.marker is None or each.marker.evaluate({"python_version": version})]


@pytest.mark.parametrize("python_version", ["3.11", "3.14"])
def test_constraints_pin_every_requirement_within_its_range(python_version: str) -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = of_python(python_version, [line for line in lines if line and not line.startswith("#")])
    pinned = {canonicalize_name(pin.name): Version(str(pin.specifier).removeprefix("==")) for pin in pins}
    assert len(pinned) == len(pins)
    required = of_python(python_version, PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"])
    assert [each.name for each in required if canonicalize_name(each.name) not in pinned] == []
    assert [str(each) for each in required if pinned[canonicalize_name(each.name)] not in each.specifier] == []
    # torch pins the CUDA libraries it was built with; a pin here would exclude its CPU build.
    assert [name for name in pinned if name.startswith(("nvidia", "cuda", "triton"))] == []


def test_lowest_versions_are_the_lower_bounds_of_the_requirements() -> None:
    lines = [Requirement(line) for line in (ROOT / "lowest.txt").read_text().splitlines() if not line.startswith("#")]
    lowest = {line.name: str(line.specifier).removeprefix("==") for line in lines if str(line.specifier)[:2] == "=="}
    required = {each.name: each.specifier for each in of_python("3.11", PROJECT["dependencies"])}
    bounds = {
        name: next(str(each.version) for each in specifier if each.operator == ">=")
        for name, specifier in required.items()
        if specifier and name not in ("torch", "torchvision")
    }
    assert lowest == bounds


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


TOOL = 'echo "${0##*/} $*" >> calls.txt'


def test_every_python_of_the_classifiers_is_accepted_and_no_other() -> None:
    required = SpecifierSet(PROJECT["requires-python"])
    listed = {each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python :: 3." in each}
    assert {version for version in (f"3.{minor}" for minor in range(9, 18)) if version in required} == listed


def test_the_first_screen_of_the_readme_has_the_two_commands_and_the_installation() -> None:
    first = (ROOT / "README.md").read_text().splitlines()[:40]
    assert [line for line in first if line.startswith("$ ")] == [
        "$ make demo",
        "$ make test",
        "$ pip install PATH/TO/CHECKOUT",
    ]


def test_only_a_known_break_bounds_a_requirement_above() -> None:
    """A newer version that nobody has tested is a note of `runmanager doctor`, and installs."""
    bounded = [each for each in map(Requirement, PROJECT["dependencies"]) if "<" in str(each.specifier)]
    assert {each.name for each in bounded} == {"hydra-core"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The set-up files, with a Python whose virtual environments only record their calls."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy2(ROOT / name, folder / name)
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    executable(tmp_path / "tool", TOOL)
    executable(
        tmp_path / "python",
        '[ "$1" = -c ] && exit 0\n'
        + f"mkdir -p $3/bin && for name in python runmanager; do cp {tmp_path}/tool $3/bin/$name; done",
    )
    return folder


def make(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["make", f"PYTHON={project.parent / 'python'}", *arguments]
    # Inside `make test`, this make must not inherit its variables.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


def calls(project: Path) -> list[str]:
    return (project / "calls.txt").read_text().splitlines()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
class TestMake:
    PACKAGE = "python tools/install.py --editable . --no-compile --constraint constraints.txt"
    EVERYTHING = "python tools/install.py --editable .[dev] --constraint constraints.txt"

    def test_installs_once_and_again_after_requirements_change(self, project: Path) -> None:
        assert make(project, "demo").returncode == 0
        assert calls(project) == [self.PACKAGE, "runmanager demo"]
        (project / "constraints.txt").touch()
        make(project, "demo")
        assert calls(project)[2:] == ["runmanager demo"]
        with (project / "constraints.txt").open("a") as file:
            file.write("# changed\n")
        make(project, "demo")
        assert calls(project)[3:] == [self.PACKAGE, "runmanager demo"]

    @pytest.mark.parametrize("first", [[], ["demo"]], ids=["at once", "after the demo"])
    def test_the_development_tools_are_added_once_and_serve_the_demo(self, project: Path, first: list[str]) -> None:
        for target in (*first, "wheel", "wheel", "demo"):
            assert make(project, target, "EPOCH=1").returncode == 0
        before = [self.PACKAGE, "runmanager demo"] if first else []
        build = "python -m hatchling build -t wheel"
        assert calls(project) == [*before, self.EVERYTHING, build, build, "runmanager demo"]

    def test_installs_again_if_the_environment_lost_its_python(self, project: Path) -> None:
        make(project, "demo")
        (project / ".venv" / "bin" / "python").unlink()
        make(project, "demo")
        assert calls(project)[2:] == [self.PACKAGE, "runmanager demo"]

    def test_bench_installs_the_compared_tools_once_and_works_without_them(self, project: Path) -> None:
        install = "python -m pip install --editable .[bench] --constraint constraints.txt"
        measures = ["python -m benchmarks.peers --write", "python -m benchmarks.summary --write"]
        for expected in ([self.EVERYTHING, install, *measures], measures):
            assert make(project, "bench", "BENCHMARKS=peers").returncode == 0
            assert calls(project) == expected
            (project / "calls.txt").unlink()
        (stamp,) = (project / ".venv").glob(".peers-*")
        stamp.unlink()
        executable(project / ".venv/bin/python", f"{TOOL}; case $* in *bench]*) exit 1; esac")
        done = make(project, "bench", "BENCHMARKS=peers")
        assert (done.returncode, calls(project)) == (0, [install, *measures])
        assert "missing tools are skipped" in done.stderr

    def test_rejects_an_unsupported_python_in_one_line(self, project: Path) -> None:
        executable(project.parent / "python", '[ "$1" = --version ] && echo Python 3.9.1 || exit 1')
        done = make(project, "demo")
        assert done.returncode == 2
        assert "error: Python must be 3.11 to 3.14, got Python 3.9.1" in done.stderr
        assert not (project / ".venv").exists()


class TestInstall:
    """tools/install.py, with an interpreter that records its calls and answers `pip config list`."""

    INDEX = "https://user:word@index.example/simple"
    LISTED = f"global.index-url='https://other.example/simple'\nglobal.extra-index-url='\\nfile:///one\\nfile:///two'\n\
:env:.index-url='{INDEX}'\n:env:.find-links='/wheels /more'\nglobal.cert='/a.crt'\nglobal.timeout='60'\n"
    CONSTRAINED = ("--constraint", "pins.txt")
    UV = "-m uv pip install --python {} --editable . --constraint pins.txt --compile-bytecode"
    PIP = "-m pip install --editable . --constraint pins.txt"
    FETCH = "-m pip install --quiet uv --constraint pins.txt"

    def calls(self, folder: Path, *more: str, fails: str = "none", **variables: str) -> list[str]:
        """Install; return the calls, that of uv with the variables that it got."""
        names = "UV_DEFAULT_INDEX UV_INDEX UV_FIND_LINKS SSL_CERT_FILE"
        tool = executable(
            folder / "python",
            f'case "$*" in *\'config list\') printf %s "$LISTED"; exit;; esac\n{TOOL.replace("${0##*/} ", "")}\n'
            f'case "$*" in *"uv pip"*) for name in {names}; do eval echo "\\$$name" >> variables.txt; done;; esac\n'
            f'case "$*" in *"{fails}"*) exit 1; esac',
        )
        code = f"import sys; sys.executable = {str(tool)!r}; sys.argv[0] = {str(ROOT / 'tools/install.py')!r}\n"
        code += "import runpy; runpy.run_path(sys.argv[0], run_name='__main__')"
        clean = {name: value for name, value in os.environ.items() if name[:3] not in ("UV_", "SSL")}
        words = [sys.executable, "-c", code, "--editable", ".", *more, *self.CONSTRAINED]
        environment = {**clean, "LISTED": self.LISTED, **variables}
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return [line.replace(str(tool), "{}") for line in (folder / "calls.txt").read_text().splitlines()]

    def test_uv_is_told_the_indexes_and_certificates_of_pip(self, tmp_path: Path) -> None:
        assert self.calls(tmp_path) == [self.FETCH, self.UV]
        told = (tmp_path / "variables.txt").read_text().splitlines()
        assert told == [self.INDEX, "file:///one file:///two", "/wheels,/more", "/a.crt"]

    def test_modules_are_compiled_unless_told_otherwise_as_by_pip(self, tmp_path: Path) -> None:
        without = "-m uv pip install --python {} --editable . --constraint pins.txt"
        assert self.calls(tmp_path, "--no-compile") == [self.FETCH, without]

    def test_the_variables_of_uv_win(self, tmp_path: Path) -> None:
        self.calls(tmp_path, UV_DEFAULT_INDEX="https://mine.example")
        assert (tmp_path / "variables.txt").read_text().splitlines()[0] == "https://mine.example"

    @pytest.mark.parametrize(("fails", "before"), [("uv pip", [FETCH, UV]), ("--quiet uv", [FETCH])])
    def test_pip_installs_where_uv_does_not(self, tmp_path: Path, fails: str, before: list[str]) -> None:
        assert self.calls(tmp_path, fails=fails) == [*before, self.PIP]


@pytest.mark.parametrize("status", [0, 3])
@pytest.mark.parametrize("has_data", [True, False])
def test_ci_runs_make_test_with_available_data(project: Path, status: int, has_data: bool) -> None:
    data = project.parent / "shared" / "data"
    if has_data:
        data.mkdir(parents=True)
    executable(project.parent / "bin" / "make", f'echo "$* $PWD ${{RUNMANAGER_DATA:-none}}"; exit {status}')
    executable(project.parent / "bin" / "apt-get", "exit 100")  # installs nothing and needs no network
    environment = {**os.environ, "PATH": f"{project.parent / 'bin'}:{os.environ['PATH']}"}
    environment.pop("RUNMANAGER_DATA", None)
    done = subprocess.run(
        [project / ".ci" / "run"], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == status
    assert done.stdout.split() == ["test", str(project), str(data) if has_data else "none"]
