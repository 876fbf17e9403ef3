"""Tests of the filter of a script's output."""

from hypothesis import given
from hypothesis import strategies as st

from runmanager.app.programs.script.output.child_process import SecretFilter


@given(st.lists(st.text("abx", max_size=6), max_size=8))
def test_secrets_are_masked_however_the_output_is_cut(parts: list[str]) -> None:
    stream = SecretFilter(["abab", "bb"])
    out = b"".join(stream.take(part.encode()) for part in parts) + stream.rest()
    assert b"abab" not in out and b"bb" not in out
    assert out.replace(b"***", b"") in "".join(parts).replace("abab", "").replace("bb", "").encode() or b"***" in out


def test_output_without_secrets_is_not_held_back() -> None:
    stream = SecretFilter(["hunter2"])
    assert [stream.take(b"50%\r"), stream.take(b"of hun"), stream.take(b"dred"), stream.rest()] == [
        b"50%\r",
        b"of ",
        b"hundred",
        b"",
    ]
    assert SecretFilter([]).take(b"anything") == b"anything"
