"""Tests of `runmanager ui` as a process: its address, its end, and what it refuses."""

import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from runmanager.records.files.paths import SweepPaths

from ...processes import wait_until
from ..conftest import process_environment, process_words


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_line_is_the_address_and_a_signal_ends_it_without_a_trace(
    sweep: SweepPaths, mortal: Callable, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    (tmp_path / "temporary").mkdir()
    environment = process_environment(TMPDIR=str(tmp_path / "temporary"), SSH_CONNECTION="192.0.2.1 5 192.0.2.2 22")
    with mortal(
        subprocess.Popen(
            process_words("ui", "--port", "0", "--no-open"),
            cwd=sweep.root.parents[1],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    ) as process:
        address = process.stdout.readline().rstrip("\n")
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=[\w-]{40,}", address)
        assert found is not None, address
        assert process.stdout.readline() == "Sweeps in outputs, live and read-only; Ctrl-C ends it.\n"
        forwarding = process.stdout.readline()
        assert f"ssh -N -L {found[1]}:127.0.0.1:{found[1]} " in forwarding and "@192.0.2.2" in forwarding
        with urllib.request.urlopen(address, timeout=60) as page:
            assert 'href="/sweep/grid"' in page.read().decode()
        with urllib.request.urlopen(address.replace("/?", "/sweep/grid?"), timeout=60) as page:
            assert "<h1>grid</h1>" in page.read().decode()
        process.send_signal(number)
        assert process.wait(60) == status
        assert process.stderr.read() == ""
        assert list((tmp_path / "temporary").iterdir()) == []
        assert not sweep.summaries.exists() and not sweep.sizes.exists()


BROWSER = "import os, sys; open('words.new', 'w').write('\\n'.join(sys.argv[1:])); os.rename('words.new', 'words')"


def test_the_browser_gets_the_token_in_a_file_of_its_user_alone(
    sweep: SweepPaths, mortal: Callable, tmp_path: Path
) -> None:
    """All users of a machine can read the words that a command is given."""
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-c", BROWSER])} "$@"\n')
    browser.chmod(0o755)
    (tmp_path / "temporary").mkdir()
    environment = process_environment(BROWSER=f"{browser} %s", TMPDIR=str(tmp_path / "temporary"))
    with mortal(
        subprocess.Popen(
            process_words("ui", "--port", "0", "--open"),
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            umask=0,
        )
    ) as process:
        address = process.stdout.readline().rstrip("\n")
        wait_until((tmp_path / "words").exists, "the browser")
        (word,) = (tmp_path / "words").read_text().splitlines()
        page = Path(word.removeprefix("file://"))
        assert (stat.S_IMODE(page.stat().st_mode), stat.S_IMODE(page.parent.stat().st_mode)) == (0o600, 0o700)
        assert f'url={address}"' in page.read_text()
        assert address.partition("token=")[2] not in word
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
        assert process.stderr.read() == ""
        assert not page.parent.exists()


def test_what_cannot_be_served_is_refused_in_one_line(command: Callable, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = {
            "ROOT must be a folder, got": command("ui", str(tmp_path / "file"), "--no-open"),
            f"`--port` must be free on 127.0.0.1, but port {port} is not": command("ui", "--port", port, "--no-open"),
            "`--host` must be an address of this machine, got '192.0.2.1'": command("ui", "--host", "192.0.2.1"),
        }
    for line, done in refused.items():
        assert (done.status, done.out) == (2, "")
        assert line in done.err and done.err.count("\n") == 1


def test_without_werkzeug_a_line_says_so(process: Callable) -> None:
    hidden = (
        "import importlib.util\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, package=None: None if name == 'werkzeug' else find(name, package)"
    )
    done = process("ui", "--no-open", before=hidden)
    assert done.status == 2 and "werkzeug" in done.err and "pip install" in done.err
