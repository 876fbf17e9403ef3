"""Every setting is described, with the default that a command has."""

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from runmanager.app.compose.schema import conf_folder, register_schema
from runmanager.app.reference.settings_reference import sections
from runmanager.launching.hydra_internals import version_base
from runmanager.text import format_value


def test_every_setting_has_a_sentence_and_every_choice_too() -> None:
    settings = [setting for section in sections() for setting in section.settings]
    assert [each.key for each in settings if not each.sentence.endswith(".")] == []
    choices = {f"{each.group}={name}": text for each in sections() for name, text in each.choices.items()}
    assert [name for name, text in choices.items() if not text.endswith((".", ")"))] == []
    assert {"optimizer=adamw", "dataset=custom", "loss=huber", "experiment=digits_quick"} <= choices.keys()


def test_defaults_are_those_of_a_command() -> None:
    register_schema()
    described = {
        each.key: each.default
        for section in sections()
        for each in section.settings
        if not each.choice or section.default in each.choice.split(", ")
    }
    with initialize_config_dir(str(conf_folder()), **version_base()):
        cell = compose("config", overrides=["hydra/launcher=basic", "hydra/sweeper=basic"])
    # The default of data_root is read from the environment, that of val_size follows the size; metrics hold any name.
    read_elsewhere = ("hydra.", "data_root", "dataset.val_size", "metrics.")
    differing = {
        key: default
        for key, default in described.items()
        if not key.startswith(read_elsewhere) and format_value(_value(cell, key)) != default
    }
    assert differing == {}
    assert len(described) > 50


def _value(cell: object, key: str) -> object:
    value = OmegaConf.select(cell, key)  # type: ignore[arg-type]
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
