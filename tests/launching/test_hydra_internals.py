"""The adapter of Hydra's and OmegaConf's private names: its versions, and every name that it wraps."""

import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from types import ModuleType
from typing import Any

import pytest
from hydra import initialize_config_dir
from hydra._internal.config_repository import CachingConfigRepository
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError

from runmanager.app.compose.schema import conf_folder
from runmanager.app.hydra_main import _register
from runmanager.launching.hydra_internals import (
    HYDRA_VERSIONS,
    OMEGACONF_VERSIONS,
    BaseConfigLoader,
    DeclaredType,
    copy_without_hydra,
    declared_type,
    flush_loggers,
    get_node,
    groups_without_copies,
    interpolated_names,
    job_context,
    job_exception,
    overrides_dirname,
    version_base,
)

GROUPS = ("", "model", "hydra", "hydra/launcher", "experiment", "nothing")


@pytest.fixture
def loader() -> Iterator[Any]:
    """Hydra's own config loader over the package's configuration."""
    _register()
    with initialize_config_dir(config_dir=str(conf_folder()), **version_base()):
        yield GlobalHydra.instance().config_loader()


@pytest.mark.parametrize(
    ("package", "versions"), [("hydra-core", HYDRA_VERSIONS), ("omegaconf", OMEGACONF_VERSIONS)], ids=lambda x: str(x)
)
def test_the_installed_version_is_one_that_the_adapter_was_read_against(
    package: str, versions: tuple[str, ...]
) -> None:
    installed = ".".join(version(package).split(".")[:2])
    assert installed in versions, (
        f"runmanager/launching/hydra_internals.py must be read against {package} {installed}, got {versions}; "
        "its docstring says what to check"
    )


def test_groups_without_copies_are_those_that_hydra_finds(loader: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> list[list[str]]:
        kinds = (ObjectType.GROUP, ObjectType.CONFIG, None)
        return [loader.get_group_options(group, kind) for group in GROUPS for kind in kinds] + [
            loader.list_groups("hydra")
        ]

    def copied(*_: object) -> None:
        raise AssertionError("a copy was made")

    original = found()
    with groups_without_copies(), monkeypatch.context() as patch:
        patch.setattr(CachingConfigRepository, "__init__", copied)
        assert found() == original
    with groups_without_copies():
        assert loader.get_group_options("model", config_name="config", overrides=["lr=1"]) == original[4]
    assert found() == original


def test_a_base_loader_knows_groups_and_applies_overrides(loader: Any) -> None:
    base = BaseConfigLoader(loader)
    assert base.has_group("model")
    assert not base.has_group("lr")
    config = OmegaConf.create({"lr": 0.1})
    base.apply_overrides(OverridesParser.create(config_loader=base).parse_overrides(["lr=0.5"]), config)
    assert config.lr == 0.5


def test_the_override_dirname_is_hydras_own(loader: Any) -> None:
    overrides = OverridesParser.create(config_loader=loader).parse_overrides(["lr=0.5", "seed=3", "epochs=2"])
    options = OmegaConf.create({"kv_sep": "=", "item_sep": ",", "exclude_keys": ["seed"]})
    assert overrides_dirname(overrides, options) in ("epochs=2,lr=0.5", None)  # None: Hydra 1.4


@pytest.mark.filterwarnings("ignore:.*no\\s+_execution_whitelist_:UserWarning")  # as its application gives none
def test_a_job_context_runs_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    class Seen(Callback):
        def on_job_end(self, config: DictConfig, job_return: JobReturn, **_: Any) -> None:
            seen.append(job_return)

    module = ModuleType("a_test_module")
    module.Seen = Seen  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    context = job_context(OmegaConf.create({"hydra": {"callbacks": {"seen": {"_target_": "a_test_module.Seen"}}}}))
    result = JobReturn()
    context.callbacks.on_job_end(config=OmegaConf.create(), job_return=result)
    assert seen == [result]


def test_the_exception_of_a_failed_job_is_returned_and_not_raised(capsys: pytest.CaptureFixture[str]) -> None:
    error = ValueError("wrong")
    result = JobReturn(status=JobStatus.FAILED)
    result.return_value = error
    assert job_exception(result) is error
    assert capsys.readouterr().err == ""


def test_flushing_reaches_every_handler() -> None:
    class Handler(logging.Handler):
        flushed = False

        def flush(self) -> None:
            self.flushed = True

    handler = Handler()
    flush_loggers()
    assert handler.flushed


def test_a_copy_without_hydra_leaves_the_original_whole() -> None:
    config = OmegaConf.create({"hydra": {"job": {"num": 1}}, "model": {"width": 3}})
    copied = copy_without_hydra(config)
    copied.model.width = 4
    assert (list(copied), config.model.width, config.hydra.job.num) == (["model"], 3, 1)


@dataclass
class Options:
    lr: float = 0.1
    width: int | None = None


def test_nodes_and_declared_types_of_a_structured_config() -> None:
    config: DictConfig = OmegaConf.structured(Options)
    config.lr = "${width}"
    assert get_node(config, "lr")._value() == "${width}"  # not resolved
    assert declared_type(config, "lr") == DeclaredType(float, is_optional=False)
    assert declared_type(config, "width") == DeclaredType(int, is_optional=True)
    with pytest.raises(ConfigAttributeError):
        declared_type(config, "depth")


def test_the_names_of_interpolations_are_those_of_settings_at_any_depth() -> None:
    text = "{a: 1, b: '${a}', c: {d: 'x${a}', e: '${c.f}', f: 2, g: null, h: '???'}, hydra: {j: '${a}'}}"
    config = OmegaConf.create(text)
    assert isinstance(config, DictConfig)
    config.i = [1, "${a}", {"j": "${a}"}, ["${a}", None]]
    config.k = "${i}"
    assert list(interpolated_names(config)) == ["b", "c.d", "c.e", "i[1]", "i[2].j", "i[3][0]", "k"]


def test_a_key_that_a_plain_config_lacks_has_no_node_and_no_type() -> None:
    config = OmegaConf.create({"lr": 0.1})
    assert get_node(config, "depth") is None
    assert declared_type(config, "depth") is None
