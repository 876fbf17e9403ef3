"""The server of `runmanager ui` over HTTP: who is let in, what no request can reach or hold up, and what it writes."""

import os
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runmanager.app.ui.web_server import Access
from runmanager.records.files.paths import SweepPaths
from runmanager.records.storage.run_folder import RunFolder

from .served import LIMIT_SECONDS, Client, tree_of, write_live_sweep

SECRET = "the content of a file outside of the folder"


def test_only_own_names_with_the_token_are_let_in(client: Client) -> None:
    token = f"/?token={client.token}"
    own = f"127.0.0.1:{client.port}"
    refused = {
        "another name": client.get(token, Host="attacker.example"),
        "another name that begins alike": client.get(token, Host=f"127.0.0.1.attacker.example:{client.port}"),
        "a name with a user": client.get(token, Host=f"127.0.0.1@attacker.example:{client.port}"),
        "an absolute address": client.get(f"http://attacker.example{token}", Host=own),
        "no name": client.get(token, Host=""),
        "no token": client.get("/", cookie=False),
        "no token at a sweep": client.get("/sweep/first", cookie=False),
        "a wrong token": client.get(f"/?token={client.token[:-1]}", cookie=False),
        "a wrong cookie": client.get("/", cookie=False, Cookie=f"runmanager-{client.port}=ü{client.token}"),
    }
    assert {what: answer.status for what, answer in refused.items()} == dict.fromkeys(refused, 403)
    assert not any("sweep/first" in answer.text for answer in refused.values())
    for name in (own, f"localhost:{client.port}", "[::1]:8080"):
        entered = client.get(token, cookie=False, Host=name)
        assert entered.status == 200 and 'href="/sweep/first"' in entered.text
    cookie = entered.headers["Set-Cookie"]
    assert cookie == f"runmanager-{client.port}={client.token}; HttpOnly; Path=/; SameSite=Strict"
    known = client.get("/sweep/first")
    assert known.status == 200 and "Set-Cookie" not in known.headers
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert client.get(token, method=method).status == 405
    head = client.get("/", method="HEAD")
    assert (head.status, head.text) == (200, "")
    for answer in (*refused.values(), entered, known, head):
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cache-Control"] == "no-store"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    policy = known.headers["Content-Security-Policy"].removesuffix("; frame-ancestors 'none'")
    assert f'content="{policy}"' in known.text


def test_a_server_at_all_addresses_is_called_by_its_name_or_any_address() -> None:
    access = Access("0.0.0.0", 6006)
    own = (f"{socket.gethostname()}:6006", "192.0.2.7:6006", "[2001:db8::1]:6006", "localhost", "0.0.0.0:6006")
    assert all(map(access.is_own_host, own))
    assert not any(map(access.is_own_host, ("attacker.example:6006", "192.0.2.7.attacker.example", "", None)))
    assert not Access("192.0.2.7", 6006).is_own_host("192.0.2.8:6006")


def test_no_address_and_no_link_leads_out(client: Client, root: Path, live: tuple[SweepPaths, RunFolder]) -> None:
    outside = root.parent / "outside"
    shutil.copytree(root / "first", outside / "secret")
    (outside / "secret.txt").write_text(SECRET)
    (root / "linked").symlink_to(outside / "secret")
    shutil.copytree(root / "first", root / "second")
    run = next((root / "second" / "runs").iterdir())
    shutil.rmtree(run)
    run.symlink_to(outside / "secret" / "runs" / run.name)
    shutil.copytree(root / "first", root / "third")
    log = next((root / "third" / "runs").iterdir()) / "run.log"
    log.symlink_to(outside / "secret.txt")
    listing = client.until("/", "third/runs").text
    assert 'href="/sweep/linked"' not in listing
    assert listing.count("is a link that leads out of") == 4  # two fields, and their CSV
    assert "is a link that leads out of" in client.get("/sweep/second").text
    paths = [
        *("/sweep/../outside/secret", "/sweep/%2e%2e/outside/secret", "/sweep/..%2foutside%2fsecret", "/sweep/linked"),
        *(
            f"/sweep/{outside}/secret",
            f"/sweep/{outside}/secret".replace("/", "%2f"),
            "/sweep/first/../../outside/secret",
        ),
        *("/../../../etc/passwd", "//etc/passwd", "/etc/passwd", "/sweep//etc/passwd", "/sweep/first/runs", "/sweep/"),
        *("/sweep/first%00", "/sweep/%ff%fe", "/compare?baseline=../outside/secret&candidate=first", "/live.js"),
    ]
    answers = {path: client.get(path) for path in paths}
    assert {path: answer.status for path, answer in answers.items()} == dict.fromkeys(paths, 404)
    assert not any(SECRET in answer.text or "root:" in answer.text for answer in answers.values())


def test_many_and_huge_and_silent_requests_hold_nothing_up(client: Client) -> None:
    with ThreadPoolExecutor(200) as pool:
        statuses = list(pool.map(lambda _: client.get("/sweep/first").status, range(200)))
    assert statuses == [200] * 200
    assert client.get(f"/?{'a' * 9000}").status == 414
    assert client.get(f"/?{'a' * 200_000}").status == 414
    assert client.get("/", X_Long="a" * 100_000).status == 431
    assert client.get("/", **{f"X_{number}": "a" for number in range(200)}).status == 431
    begun = b"", b"GET / HTTP/1.1\r\nHost: ", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n"
    silent = [socket.create_connection(("127.0.0.1", client.port), timeout=LIMIT_SECONDS) for _ in range(60)]
    try:
        for number, each in enumerate(silent):
            each.sendall(begun[number % 3])
        assert client.get("/").status == 200
    finally:
        for each in silent:
            each.close()


def test_it_writes_nothing(client: Client, root: Path) -> None:
    write_live_sweep(root / "second")[1].close()
    for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        folder.chmod(0o555)
    before = tree_of(root)
    try:
        addresses = ("/", "/sweep/first", "/sweep/second", "/compare?baseline=first&candidate=second", "/nowhere")
        assert [client.get(each).status for each in addresses] == [200, 200, 200, 200, 404]
        client.until("/sweep/first", '<div class="drawing"')  # the figures too
        assert tree_of(root) == before
    finally:
        for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
            folder.chmod(0o755)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads by /proc")
def test_threads_are_bounded(client: Client) -> None:
    before = peak = len(os.listdir("/proc/self/task"))
    opened = [socket.create_connection(("127.0.0.1", client.port), timeout=LIMIT_SECONDS) for _ in range(100)]
    try:
        with ThreadPoolExecutor(1) as pool:  # answered once those who came before have been cut off
            asked = pool.submit(client.get, "/")
            while not asked.done():
                peak = max(peak, len(os.listdir("/proc/self/task")))
        assert asked.result().status == 200
        assert before + 20 < peak <= before + 1 + 32
    finally:
        for each in opened:
            each.close()
