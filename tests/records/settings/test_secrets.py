"""Tests of which settings are secrets, and of what is masked."""

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
    secrets_from_environment,
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
