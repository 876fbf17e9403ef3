"""The setting of a sweeper with the address of its notification, which may hold a secret and is not recorded."""

from omegaconf import DictConfig, open_dict, read_write

from runmanager.launching.hydra_internals import hydra_words

__all__ = ["forget_notification"]

_SETTING = "hydra.sweeper.notify"


def forget_notification(master: DictConfig) -> None:
    """Remove the setting from the configuration that cells are composed from, so that none stores it."""
    given = hydra_words(master)
    with read_write(master.hydra), open_dict(master.hydra):
        master.hydra.overrides.hydra = [word for word in given if word.partition("=")[0].lstrip("+") != _SETTING]
        master.hydra.sweeper.notify = None
