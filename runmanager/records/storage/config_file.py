"""config.yaml in a run folder: the run's settings, for people."""

import yaml

from runmanager.records.files.atomic_files import replace_file
from runmanager.records.storage.run_folder import RunFolder

__all__ = ["write_config"]

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # same text in a third of the time


def write_config(folder: RunFolder) -> None:
    """Write the settings of the run that is about to begin."""
    text = yaml.dump(folder.record.config, Dumper=_DUMPER, sort_keys=False, allow_unicode=True)
    replace_file(folder.paths.config, text)
