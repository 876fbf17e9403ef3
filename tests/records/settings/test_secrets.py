"""Tests of which settings are secrets, and of what is masked."""

import json

import pytest

from runmanager.errors import UsageError
from runmanager.records.settings.secrets import (
    MASK,
    declare_secrets,
    is_secret,
    is_secret_variable,
    masked_names,
    masked_settings,
    masked_words,
    redacted,
    refuse_masks,
    remember_secrets,
    remembered_secrets,
    secret_axis_notes,
    secrets_from_environment,
    without_remembered_secrets,
    without_secrets,
)
from runmanager.records.settings.signature import signature
from runmanager.records.settings.values import plain_settings


@pytest.mark.parametrize(
    "name",
    [
        *("password", "db.password", "userPassword", "api-key", "API_KEY", "apikey", "model.apiKey", "wandb_api_key"),
        *("client-secret", "access_token", "a.b.authToken", "+model.api_key", "--auth-token"),
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["token", "max_tokens", "key", "secrets", "password.length", "passwords", "secretary", "api_key_name", "lr"]
)
def test_names_that_are_none(name: str) -> None:
    assert not is_secret(name)


def test_further_names_are_declared_for_this_process() -> None:
    assert not is_secret("model.pin")
    declare_secrets(["pin", " db.user "])
    declare_secrets([])
    assert is_secret("model.pin") and is_secret("userPin") and is_secret("db.user")
    assert not is_secret("user") and not is_secret("other.user")


def test_a_variable_is_a_secret_by_more_words_than_a_setting() -> None:
    assert is_secret_variable("HF_TOKEN") and is_secret_variable("KEY") and is_secret_variable("MY_PASSWORD")
    assert not is_secret_variable("KEYBOARD") and not is_secret("token")


def test_only_texts_of_secrets_are_masked() -> None:
    settings = {
        "": 1,
        "lr": 0.1,
        "password": "hunter2",
        "url": "db://me:hunter2@host",
        "db": {"secret": 5, "api_key": None, "auth_token": "", "access_token": "${oc.env:TOKEN}"},
        "parts": [{"api_key": "first-key"}, "first-key"],
        "keys": {"secret": {"one": "abc", "two": ["${other}", "x"], "n": 1}},
        "short": {"password": "adam"},
        "optimizer": "adam",
    }
    masked = plain_settings(settings)
    assert masked == settings | {
        "password": MASK,
        "url": f"db://me:{MASK}@host",
        "parts": [{"api_key": MASK}, MASK],
        "keys": {"secret": {"one": MASK, "two": ["${other}", MASK], "n": 1}},
        "short": {"password": MASK},
    }
    assert masked_settings(masked) == masked
    assert masked_names(masked) == ["password", "url", "parts.api_key", "parts", *masked_names(masked)[4:]]
    assert masked_names({"a": {"b": MASK}, "c": [MASK], "d": 1}) == ["a.b", "c"]


@pytest.mark.parametrize("text", ["${oc.env:A,fallback}", "x${oc.env:A}", "${oc.env:A} ", "$key", "${a"])
def test_a_text_with_a_literal_part_is_no_reference(text: str) -> None:
    assert masked_settings({"password": text}) == {"password": MASK}


@pytest.mark.parametrize(
    "text", ["${oc.env:A}", "${oc.env:A,null}", "${oc.env:A,''}", "${a.b}", "${oc.decode:${oc.env:A}}"]
)
def test_references_stay(text: str) -> None:
    assert masked_settings({"password": text}) == {"password": text}


def test_a_secret_counts_by_its_name_in_a_signature() -> None:
    def signed(**settings: object) -> str:
        return signature(plain_settings(settings))

    assert signed(lr=1, api_key="one") == signed(lr=1, api_key="another")
    assert (
        len(
            {
                signed(lr=1),
                signed(lr=1, api_key="one"),
                signed(lr=1, api_key="${oc.env:A}"),
                signed(lr=2, api_key="one"),
            }
        )
        == 4
    )


@pytest.mark.parametrize(
    ("words", "masked"),
    [
        (["+model.api_key=abc", "lr=1"], ["+model.api_key=***", "lr=1"]),
        (["api_key=a,b", "password=1,2", "secret=null"], ["api_key=***", "password=1,2", "secret=null"]),
        (["api_key=${oc.env:A},${oc.env:B}", "api_key='x,y'"], ["api_key=${oc.env:A},${oc.env:B}", "api_key=***"]),
        (["--api-key", "abc", "--password", "--lr", "1"], ["--api-key", "***", "--password", "--lr", "1"]),
        (["--auth-token=abc", "secret", "abc"], ["--auth-token=***", "secret", "abc"]),
        (
            ["model={api_key:abc,lr:1}", "url=http://h/?api_key=abc&x=1"],
            ["model={api_key:***,lr:1}", "url=http://h/?api_key=***&x=1"],
        ),
        (["hydra.sweeper.secrets=[pin]", "--secrets", "pin"], ["hydra.sweeper.secrets=[pin]", "--secrets", "pin"]),
    ],
)
def test_words_of_a_command(words: list[str], masked: list[str]) -> None:
    assert list(masked_words(words)) == masked
    assert list(masked_words(masked)) == masked


def test_what_was_masked_is_removed_from_texts_for_people() -> None:
    assert redacted("password=abc and s3cret'text") == "password=abc and s3cret'text"
    masked_settings({"password": "s3cret'text", "api_key": "abc"})
    assert redacted("""not s3cret'text, "s3cret'text" or 's3cret\\'text'""") == f"not {MASK}, \"{MASK}\" or '{MASK}'"
    assert redacted("abc of password=abc, `password` must be") == f"abc of password={MASK}, `password` must be"


def test_a_mask_is_no_value() -> None:
    refuse_masks(["lr=***", "api_key=abc", "***"])
    with pytest.raises(UsageError, match=r"`model.api_key` must be given its own text, got the mask \*\*\*"):
        refuse_masks(["+model.api_key=***"])


def test_references_are_replaced_by_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "of-the-variable")
    given = {"api_key": "${oc.env:A_TOKEN}", "lr": "${oc.env:A_TOKEN}", "in": {"password": "literal"}}
    assert secrets_from_environment(given) == given | {"api_key": "of-the-variable"}
    assert redacted("of-the-variable") == MASK
    with pytest.raises(UsageError, match=r"`api_key` must name an environment variable that is set, got .*UNSET_ONE"):
        secrets_from_environment({"api_key": "${oc.env:UNSET_ONE}"})
    with pytest.raises(UsageError, match=r"`in\.api_key` must come from the environment to be used again"):
        secrets_from_environment({"in": {"api_key": MASK}})


def test_values_that_cannot_be_texts_stay_in_commands() -> None:
    others = ["null", "None", "TRUE", "false", "12", "-1_000", "1e5", "+.5", "INF", "-nan"]
    assert masked_words([f"db.password={each}" for each in others]) == tuple(f"db.password={each}" for each in others)
    assert masked_words(["db.password=1e5x", "db.password=nullable"]) == (f"db.password={MASK}",) * 2
    assert masked_words(["--api-key", "null", "--api-key", "--lr"]) == ("--api-key", "null", "--api-key", "--lr")


def test_assignments_within_a_text_are_masked_by_either_sign() -> None:
    for text in ("password: hunter22", "password=hunter22", "'password': 'hunter22'", "u=http://h/?password=hunter22"):
        (found,) = masked_words([text])
        assert "hunter22" not in found and MASK in found and found.startswith(text[:1])
    assert masked_words(["plain", "lr: 0.1", "a=b:c"]) == ("plain", "lr: 0.1", "a=b:c")


def test_remembered_texts_go_in_each_way_in_which_they_are_quoted() -> None:
    secret = "a\"b\\c'd\n"
    remember_secrets([secret, MASK, "four"])
    assert redacted(f"x {secret} y") == redacted(f"x {secret.replace(chr(39), chr(92) + chr(39))} y") == f"x {MASK} y"
    assert redacted(f"x {json.dumps(secret)} y") == f'x "{MASK}" y'
    assert redacted(f"x {secret!r} y") == f"x {repr(secret)[0]}{MASK}{repr(secret)[0]} y"
    assert redacted("four fourteen") == "four fourteen"  # too short
    remember_secrets(["fives", "longest five"])
    known = remembered_secrets()
    assert "fives" in known and "four" not in known and known == sorted(known, key=len, reverse=True)
    assert redacted("longest five, fives") == f"{MASK}, {MASK}"


def test_nested_values_are_redacted_where_a_secret_is_known() -> None:
    nested = {"a": ["hunter22", 1, {"b": "x hunter22"}], "c": None, "d": "password=other1"}
    assert without_remembered_secrets(nested) is nested
    remember_secrets(["hunter22"])
    assert without_remembered_secrets(nested) == {
        "a": [MASK, 1, {"b": f"x {MASK}"}],
        "c": None,
        "d": f"password={MASK}",
    }


def test_masks_are_found_by_name_in_lists_and_groups() -> None:
    settings = {"a": {"password": MASK, "b": [MASK, {"c": f"x {MASK}"}]}, "d": (MASK, "x"), "e": 1}
    assert masked_names(settings) == ["a.password", "a.b", "a.b.c", "d"]


def test_axes_that_are_secrets_get_a_note() -> None:
    (note,) = secret_axis_notes(["lr", "+db.password"])
    assert note.startswith("`db.password` is a secret, which counts by its name alone")
    assert without_secrets(["lr", "password", "model.api_key"]) == ["lr"]


def test_secrets_below_the_name_of_a_secret_come_from_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_A", "hunter22")
    given = {"auth_token": {"inner": "${oc.env:TOKEN_A}"}, "text": "${oc.env:TOKEN_A}", "password": "plain", "lr": 1}
    assert secrets_from_environment(given) == given | {"auth_token": {"inner": "hunter22"}}
    assert redacted("hunter22") == MASK
    with pytest.raises(UsageError, match=r"`a\.password` must come from the environment"):
        secrets_from_environment({"a": {"password": MASK}})
    with pytest.raises(UsageError, match="must name an environment variable that is set, got"):
        secrets_from_environment({"password": "${oc.env:NOT_SET_HERE}"})


def test_an_empty_name_declares_nothing() -> None:
    declare_secrets(["", " "])
    assert not is_secret("lr_") and not is_secret("")
    declare_secrets(["pin", ""])
    assert is_secret("pin") and not is_secret("lr_")
