"""Scripts that are Hydra applications are recognised by their source."""

from pathlib import Path

import pytest

from runmanager.app.programs.script.script import find_script


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import hydra\n@hydra.main(version_base=None)\ndef main(cfg): ...", True),
        ("from hydra import main as application\n@application()\ndef main(cfg): ...", True),
        ("import hydra as h\ndef task(cfg): ...\nh.main(config_path='x')(task)()", True),
        ("import hydra.core\n@hydra.main()\ndef main(cfg): ...", True),
        ("from hydra import compose, initialize\ncompose('config')", False),
        ("import hydra.utils as hydra_utils\nhydra_utils.main()", False),
        ("def main(): ...\nmain()", False),
        ("'@hydra.main()'", False),
        ("import hydra\nhydra.utils.instantiate({})", False),
        ("this is no Python", False),
    ],
)
def test_an_application_is_what_applies_hydras_main(source: str, expected: bool, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(source)
    assert find_script("train.py", is_module=False, folder=tmp_path).is_hydra_application is expected
