"""Tests that Hydra's groups and choices, looked up without copies, are those that Hydra itself finds."""

import pytest
from hydra import initialize_config_dir
from hydra._internal.config_repository import CachingConfigRepository
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType

from runmanager.app.compose.config_groups import groups_without_copies
from runmanager.app.compose.schema import conf_folder
from runmanager.app.main import _register

GROUPS = ("", "model", "hydra", "hydra/launcher", "experiment", "nothing")


def test_they_are_those_that_hydra_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> list[list[str]]:
        kinds = (ObjectType.GROUP, ObjectType.CONFIG, None)
        return [loader.get_group_options(group, kind) for group in GROUPS for kind in kinds] + [
            loader.list_groups("hydra")
        ]

    def copied(*_: object) -> None:
        raise AssertionError("a copy was made")

    _register()
    with initialize_config_dir(config_dir=str(conf_folder()), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        own = found()
        with groups_without_copies(), monkeypatch.context() as patch:
            patch.setattr(CachingConfigRepository, "__init__", copied)
            assert found() == own
        with groups_without_copies():
            assert loader.get_group_options("model", config_name="config", overrides=["lr=1"]) == own[4]
        assert found() == own
