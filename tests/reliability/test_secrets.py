"""The search for secrets in all that programs of every kind leave."""

from pathlib import Path

import pytest
from secret_search import SECRETS, Search, search_programs


@pytest.mark.release
def test_no_secret_is_written_or_printed(tmp_path: Path) -> None:
    search = search_programs(tmp_path)
    assert search.places == []
    assert search.files > 100 and search.outputs > 15


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    (tmp_path / SECRETS[2]).write_bytes(b"\0" + SECRETS[0].encode())
    search = Search()
    search.look_below(tmp_path)
    assert len(search.places) == 2
