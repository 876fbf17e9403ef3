"""Settings that other programs stored are read as data, whatever a file holds."""

from pathlib import Path, PurePath

import pytest

from runmanager.app.adopt.found_runs import read_yaml_settings, settings_of_name
from runmanager.errors import RecordError


def test_settings_keep_their_types_and_interpolations_stay_text(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "lr: 1.0e-05\nmodel:\n  1: [8, null]\nwhen: 2026-11-22\nout: ${hydra:runtime.output_dir}\nscale: .inf\n"
    )
    assert read_yaml_settings(path) == {
        "lr": 1e-5,
        "model": {"1": [8, None]},
        "when": "2026-11-22",
        "out": "${hydra:runtime.output_dir}",
        "scale": "inf",
    }


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [1, 1]\n"
        + "".join(f"a{n}: &a{n} [*a{n - 1 if n else ''}, *a{n - 1 if n else ''}]\n" for n in range(30)),
        "a: &a [*a]\n",
        "a: " + "[" * 5000 + "]" * 5000,
        "a: !!python/object/apply:os.system ['true']\n",
        "- 1\n",
        "a: 'x\n",
        "a: 1" + "#" * (1 << 20),
        "a: \udcff",
        "m0: &m0 {a: 1}\n" + "".join(f"m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}]}}\n" for n in range(1, 30)),
        "a: !!int x\n",
        "a: !!int \x27\x27\n",
        "a: !!timestamp x\n",
    ],
    ids=["grows", "endless", "deep", "code", "list", "torn", "large", "bytes", "merges", "int", "empty", "time"],
)
def test_damaged_and_hostile_files_are_named_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(RecordError, match=r"config\.yaml") as error:
        read_yaml_settings(path)
    assert len(str(error.value).splitlines()) == 1


def test_settings_are_read_from_the_names_of_folders() -> None:
    path = PurePath("night", "lr=1e-3,batch=32", "amp=true,note=", "version_0")
    assert settings_of_name(path) == {"lr": 0.001, "batch": 32, "amp": True, "note": "", "folder": "night/version_0"}
    assert settings_of_name(PurePath("a,lr=1")) == {"folder": "a,lr=1"}
    assert settings_of_name(PurePath("x=nan")) == {"x": "nan"}
    assert settings_of_name(PurePath()) == {}
