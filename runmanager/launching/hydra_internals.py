"""Private names of Hydra and OmegaConf. No other module of the package uses any.

Read against Hydra 1.3 and 1.4, OmegaConf 2.3 and 2.4. On an upgrade: run this module's tests with the new version, read
what changed in `hydra/main.py`, `hydra/_internal/config_loader_impl.py`, `hydra/core/utils.py` and
`omegaconf/base.py`, and add the version below.
"""

import copy
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum
from functools import cache, wraps
from pathlib import Path
from typing import Any, NamedTuple

import hydra
import hydra._internal.config_loader_impl as config_loader_impl
import hydra.core.utils as core_utils
import omegaconf
import yaml
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn, _flush_loggers
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf._utils import get_omega_conf_dumper
from omegaconf.basecontainer import BaseContainer

from runmanager.records.settings.secrets import masked_settings, without_remembered_secrets

__all__ = [
    "HYDRA_VERSIONS",
    "OMEGACONF_VERSIONS",
    "OWN_CALLBACK",
    "BaseConfigLoader",
    "ConfigLoaderImpl",
    "DeclaredType",
    "active_whitelist",
    "copy_without_hydra",
    "declared_type",
    "flush_loggers",
    "get_node",
    "groups_without_copies",
    "hydra_config_set",
    "hydra_words",
    "interpolated_names",
    "is_none",
    "job_context",
    "job_exception",
    "keep_imported_main_quiet",
    "overrides_dirname",
    "raw_value",
    "register_resolver",
    "replace_commands",
    "resolvers",
    "secrets_masked_in_files",
    "settings_yaml",
    "store_config",
    "version_base",
    "whitelisted",
]

HYDRA_VERSIONS = ("1.3", "1.4")
"""The versions of Hydra that this module was read against."""

OMEGACONF_VERSIONS = ("2.3", "2.4")
"""The versions of OmegaConf that this module was read against."""


OWN_CALLBACK = "hydra_plugins.runmanager.RuntimeSettings"
"""The callback of this package's plugin, which has done its part before the sweeper begins."""


class BaseConfigLoader(ConfigLoaderImpl):
    """Hydra's config loader over the search path of `loader`, with the private methods that subclasses need."""

    def __init__(self, loader: ConfigLoader) -> None:
        assert isinstance(loader, ConfigLoaderImpl)  # the only class of loaders that Hydra makes
        super().__init__(loader.get_search_path())

    def has_group(self, name: str) -> bool:
        """Whether a config group of this name exists. Searches the file system."""
        return bool(self.repository.group_exists(name))

    def has_config(self, path: str) -> bool:
        """Whether a configuration file of this path exists. Searches the file system."""
        return bool(self.repository.config_exists(path))

    def search_as(self, master: DictConfig) -> None:
        """Find groups also where the application's `hydra.searchpath` says, as Hydra does while it composes."""
        words = OverridesParser.create().parse_overrides(hydra_words(master))
        repository: Any = self.repository  # it has the one method that is called
        self._process_config_searchpath(master.hydra.job.config_name, words, repository)

    def apply_overrides(self, overrides: Sequence[Override], config: DictConfig) -> None:
        """Apply overrides of values to `config` in place. Raises Hydra's and OmegaConf's errors."""
        self._apply_overrides_to_config(list(overrides), config)


def overrides_dirname(overrides: Sequence[Override], options: DictConfig) -> str | None:
    """Return `hydra.job.override_dirname`; None with Hydra 1.4, which computes it when it is read."""
    dirname: Any = getattr(config_loader_impl, "get_overrides_dirname", None)
    if dirname is None:
        return None
    name: str = dirname(
        overrides=list(overrides),
        kv_sep=options.kv_sep,
        item_sep=options.item_sep,
        exclude_keys=options.exclude_keys,
    )
    return name


@contextmanager
def groups_without_copies() -> Iterator[None]:
    """Make Hydra look up config groups without copying its repository.

    Hydra copies everything it has read for each look-up, 80 times for one help page. Only a look-up with overrides
    needs the copy, as overrides may add a search path; those still get one.
    """
    original = ConfigLoaderImpl.get_group_options

    def get_group_options(
        self: Any,
        group_name: str,
        results_filter: ObjectType | None = ObjectType.CONFIG,
        config_name: str | None = None,
        overrides: list[str] | None = None,
    ) -> list[str]:
        if config_name is not None or overrides or not hasattr(self, "repository"):
            return original(self, group_name, results_filter, config_name, overrides)
        found: list[str] = self.repository.get_group_options(group_name, results_filter)
        return found

    ConfigLoaderImpl.get_group_options = get_group_options  # type: ignore[method-assign]  # restored below
    try:
        yield
    finally:
        ConfigLoaderImpl.get_group_options = original  # type: ignore[method-assign]


def job_context(config: DictConfig) -> HydraContext:
    """Return a context that runs the callbacks of `config` but cannot compose a configuration."""
    whitelist = active_whitelist()
    of_1_4: dict[str, Any] = {} if whitelist is None else {"execution_whitelist": whitelist}
    return HydraContext(config_loader=None, callbacks=Callbacks(config), **of_1_4)  # type: ignore[arg-type]


def active_whitelist() -> Any:
    """Return what configurations may name as a `_target_` here; None with Hydra 1.3, and where nothing was said."""
    policy: Any = sys.modules.get("hydra._internal.execution_policy")
    return None if policy is None else policy._get_active_execution_whitelist()


def whitelisted(whitelist: Any) -> AbstractContextManager[Any]:
    """Let configurations name what `active_whitelist` has returned, perhaps in another process."""
    if whitelist is None:
        return nullcontext()
    policy: Any = importlib.import_module("hydra._internal.execution_policy")
    permitted: AbstractContextManager[Any] = policy.execution_whitelist(whitelist, reset=True)
    return permitted


def job_exception(result: JobReturn) -> Any:
    """Return the exception of a failed job; `JobReturn.return_value` would print a line and raise it."""
    return result._return_value


def flush_loggers() -> None:
    """Flush every logging handler, as Hydra does when a job ends."""
    _flush_loggers()


def copy_without_hydra(config: DictConfig) -> DictConfig:
    """Return a deep copy of `config` without its `hydra` node, by far the largest, which is never copied."""
    content = config.__dict__["_content"]
    node = content.pop("hydra")
    try:
        return copy.deepcopy(config)
    finally:
        content["hydra"] = node


def get_node(config: DictConfig | ListConfig, key: Any) -> Any:
    """Return the node of a key without resolving or converting it; None where the key does not exist.

    Raises OmegaConf's `ConfigAttributeError` where a structured config does not declare the key.
    """
    return config._get_node(key)


def settings_yaml(config: DictConfig | ListConfig, *, key: str | None = None) -> str:
    """Format a configuration as `OmegaConf.to_yaml` does, under `key` if it is given, with secrets masked."""
    plain: Any = _unresolved(config)
    if isinstance(plain, dict):
        plain = masked_settings(plain)
    plain = without_remembered_secrets(plain)
    text: str = yaml.dump(
        plain if key is None else {key: plain},
        default_flow_style=False,
        allow_unicode=True,
        sort_keys=False,
        Dumper=_dumper(),
    )
    return text


def _unresolved(node: Any) -> Any:
    """Return a node as `OmegaConf.to_container(node, resolve=False, enum_to_str=True)` does, in a fifth of the time."""
    if not isinstance(node, DictConfig | ListConfig):
        return _named(node._value())
    content = node.__dict__["_content"]
    if isinstance(content, dict):
        return {_named(key): _unresolved(child) for key, child in content.items()}
    return [_unresolved(child) for child in content] if isinstance(content, list) else content


def _named(value: Any) -> Any:
    return value.name if isinstance(value, Enum) else value


@cache
def _dumper() -> Any:
    """OmegaConf's dumper over libyaml's emitter, which takes half the time; its own where PyYAML has no libyaml."""
    own: Any = get_omega_conf_dumper()
    emitter = getattr(yaml, "CDumper", None)
    return own if emitter is None else type("Dumper", (emitter,), {"yaml_representers": own.yaml_representers})


@contextmanager
def secrets_masked_in_files() -> Iterator[None]:
    """Make Hydra's `run_job` write a job's settings with secrets masked."""
    original = core_utils._save_config

    def save(cfg: Any, filename: str, output_dir: Path) -> None:
        output_dir.mkdir(parents=True, exist_ok=True)
        (output_dir / filename).write_text(settings_yaml(cfg), encoding="utf-8")

    core_utils._save_config = save
    try:
        yield
    finally:
        core_utils._save_config = original


def raw_value(node: Any) -> Any:
    """Return the value of a node as it was written: the text of an interpolation."""
    return node._value()


def interpolated_names(config: DictConfig) -> Iterator[str]:
    """Yield the dotted names of the settings whose values are interpolations, without those of Hydra.

    An element of a list has its index, as in `sizes[0]`.
    """
    for key, node in _nodes(config):
        if key != "hydra":
            yield from _interpolated(node, str(key))


def _interpolated(node: Any, name: str) -> Iterator[str]:
    if node._is_interpolation():
        yield name
    elif isinstance(node, DictConfig | ListConfig):
        for key, each in _nodes(node):
            yield from _interpolated(each, f"{name}[{key}]" if isinstance(node, ListConfig) else f"{name}.{key}")


def _nodes(config: DictConfig | ListConfig) -> Iterable[tuple[Any, Any]]:
    content: Any = config._content
    return content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()


def hydra_words(master: DictConfig) -> list[str]:
    """Return the overrides of Hydra's own settings as they were given, with their interpolations as text."""
    words: Any = OmegaConf.to_container(master.hydra.overrides.hydra, resolve=False)
    return [str(word) for word in words]


def is_none(node: Any) -> bool:
    """Whether a mapping or a list is null."""
    return bool(node._is_none())


def resolvers() -> dict[str, Any]:
    """Return OmegaConf's registry of resolvers by name; changes take effect."""
    registry: dict[str, Any] = BaseContainer._resolvers
    return registry


@contextmanager
def hydra_config_set(config: DictConfig) -> Iterator[None]:
    """Make `${hydra:…}` read a configuration, as it does in a job."""
    instance: Any = HydraConfig.instance()
    earlier, instance.cfg = instance.cfg, config
    try:
        yield
    finally:
        instance.cfg = earlier


class DeclaredType(NamedTuple):
    """The type that a structured config declares for a key."""

    type: Any
    is_optional: bool


def declared_type(config: DictConfig, key: str) -> DeclaredType | None:
    """Return the declared type of a key; None where the key does not exist. Raises as `get_node`."""
    node = get_node(config, key)
    return None if node is None else DeclaredType(node._metadata.ref_type, node._metadata.optional)


@cache
def keep_imported_main_quiet() -> None:
    """Let a call of a `hydra.main` function do nothing in this process and its forks while the main module is imported.

    A process of a job imports the driver's main module as `__mp_main__`. One that calls its function without
    `if __name__ == "__main__":` would begin the application again there, instead of the job.
    """
    module = importlib.import_module("hydra.main")  # `hydra.main` itself is the function
    original = module._run_hydra

    @wraps(original)
    def run_unless_imported(*args: Any, **options: Any) -> None:
        if not _is_main_imported():
            original(*args, **options)

    module._run_hydra = run_unless_imported  # type: ignore[attr-defined]


def replace_commands(
    command: Callable[[ConfigLoader, TaskFunction, Sequence[str], Callable[[Sequence[str]], Any]], Any],
) -> None:
    """Let applications call `command` where Hydra would run a job or a sweep.

    It gets the loader, the task, the overrides, and what Hydra would have done with overrides.
    """
    from hydra._internal.hydra import Hydra  # late: an application imports it when it starts

    def replaced(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def call(
            self: Any, config_name: str | None, task_function: TaskFunction, overrides: list[str], **parsed: Any
        ) -> Any:  # `parsed`: from Hydra 1.4 on the overrides once more, parsed, which other words are not
            def go_on(words: Sequence[str]) -> Any:
                return original(self, config_name, task_function, list(words))

            return command(self.config_loader, task_function, overrides, go_on)

        return call

    for name in ("run", "multirun"):
        setattr(Hydra, name, replaced(getattr(Hydra, name)))


def _is_main_imported() -> bool:
    """Whether the caller is reached from the body of a main module that multiprocessing imports."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "__mp_main__":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def version_base() -> dict[str, Any]:
    """Return the argument `version_base`, which Hydra 1.3 needs for its own behaviour and 1.4 deprecates."""
    return {"version_base": "1.3"} if hydra.__version__.startswith("1.3.") else {}


def store_config(name: str, node: Any, *, group: str | None = None) -> None:
    """Store a configuration with Hydra in place of an earlier one: Hydra 1.4 must be told to, 1.3 always does it."""
    replaces: dict[str, Any] = {} if hydra.__version__.startswith("1.3.") else {"replace": True}
    ConfigStore.instance().store(group=group, name=name, node=node, provider="runmanager", **replaces)


def register_resolver(name: str, resolver: Callable[..., Any], *, use_cache: bool = False) -> None:
    """Register a resolver in place of an earlier one; each version of OmegaConf deprecates the other's function."""
    is_earlier = omegaconf.__version__.startswith("2.3.")
    register: Any = OmegaConf.register_new_resolver if is_earlier else OmegaConf.register_resolver
    register(name, resolver, replace=True, use_cache=use_cache)
