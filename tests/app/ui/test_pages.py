"""The pages of `runmanager ui` while sweeps are made, come, go, and break."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runmanager.app.ui import pages, sweep_board
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.status import Reason, Status
from runmanager.records.storage.reader import read_record, read_sweep
from runmanager.records.storage.run_folder import RunFolder
from runmanager.records.storage.versioned_file import encode_record
from runmanager.records.sweep.lookup import Messages
from runmanager.records.sweep.sweep_record import SweepCommand, leave_sweep, plan_cell, write_cells
from runmanager.results.load import summary_cache

from .served import Client, epoch, write_live_sweep


def test_an_epoch_and_an_end_are_news(client: Client, live: tuple[SweepPaths, RunFolder]) -> None:
    _, going = live
    page = client.until("/sweep/first", '<div class="drawing"')
    assert "1 finished, 1 running" in page.text and "0.504" in page.text and "0.505" not in page.text
    assert page.text.count("As of ") == 1
    seen = f"/sweep/first?seen={page.attribute('version')}&drawn={page.attribute('drawn')}"
    assert (client.get(seen).status, client.get(seen).text) == (204, "")
    going.append(epoch(5))
    news = client.get(seen)
    while news.status == 204:  # one look at the files serves all readers for a moment
        news = client.get(seen)
    running = news.text.partition('id="running"')[2].partition("</section>")[0]
    assert "<td" in running and "0.505" in running and ">9<" in running
    client.until("/sweep/first", "0.505", below='id="results"')
    dead = ProcessIdentity(
        pid=2**22 + 1, start_ticks=1, boot_id=ProcessIdentity.current().boot_id, host=ProcessIdentity.current().host
    )
    record = msgspec.structs.replace(read_record(going.paths), owner=dead)
    going.paths.record.write_bytes(encode_record(record))
    assert "1 finished, 1 crashed" in client.until("/sweep/first", "1 crashed").text
    assert "1 finished, 1 crashed" in client.until("/", "1 crashed").text
    record = msgspec.structs.replace(record, status=Status.FINISHED)
    going.paths.record.write_bytes(encode_record(record))
    assert 'id="running" aria-labelledby="running-heading" hidden' in client.until("/sweep/first", "2 finished").text


def test_what_a_driver_at_work_says_is_news(client: Client, live: tuple[SweepPaths, RunFolder]) -> None:
    paths, _ = live
    page = client.until("/sweep/first", '<div class="drawing"')
    assert '<ul id="said" hidden>' in page.text
    write_cells(paths, [], SweepCommand(["sweep"], axes={}), driver=ProcessIdentity.current())
    Messages(paths).say("seed=1  killed (signal): <SIGKILL>; retried (2 of 2)")
    said = client.until("/sweep/first", "retried").text.partition('<ul id="said">')[2].partition("</ul>")[0]
    assert re.search(r"<li>\d\d:\d\d:\d\d seed=1  killed \(signal\): &lt;SIGKILL&gt;; retried \(2 of 2\)</li>", said)
    leave_sweep(paths, ProcessIdentity.current())
    client.until("/sweep/first", '<ul id="said" hidden>')


def test_sweeps_come_go_move_and_break_in_their_own_row(client: Client, root: Path) -> None:
    write_live_sweep(root / "project" / "deep & <b>")[1].close()
    assert (
        'href="/sweep/project/deep%20%26%20%3Cb%3E">project/deep &amp; &lt;b&gt;</a>' in client.until("/", "deep").text
    )
    assert client.get("/sweep/project/deep%20%26%20%3Cb%3E").status == 200
    shutil.copytree(root / "first", os.fsdecode(os.fsencode(root) + b"/bad\xff"))
    assert "<td>bad\\udcff</td>" in client.until("/", "bad\\udcff").text  # no address can have this name
    write_live_sweep(root / "second")[1].close()
    record = root / "second" / "sweep.json"
    whole = record.read_bytes()
    record.write_bytes(whole[:50])
    row = client.until("/", "sweep.json is damaged").text
    assert row.partition("</table>")[0].count("1 finished, 1 running; not read: ") == 2  # the field, and its CSV
    assert client.get("/sweep/second").status == 200
    record.write_bytes(whole)
    client.until("/", 'data-drawn="')
    next((root / "second" / "runs").iterdir()).joinpath("epochs.jsonl").write_text('{"epoch": 1, "lo\n{"half')
    assert "epochs.jsonl is damaged" in client.until("/", "epochs.jsonl is damaged").text
    (root / "second").rename(root / "third")
    assert 'href="/sweep/second"' not in client.until("/", 'href="/sweep/third"').text
    assert client.get("/sweep/second").status == 404
    shutil.rmtree(root)
    gone = client.until("/", "There is no sweep here yet")
    assert "cannot be read" in gone.text


def test_two_sweeps_are_compared_and_followed(client: Client, root: Path) -> None:
    assert "Choose two different sweeps" in client.get("/compare?candidate=first").text
    _, going = write_live_sweep(root / "second")
    going.append(epoch(5))
    address = "/compare?baseline=first&candidate=second"
    client.until("/", 'href="/sweep/second"')
    page = client.until(address, 'id="comparison"').text
    assert "Comparison of second with first" in page and "candidate: samples per second" in page
    assert '<option value="first" selected>' in page
    going.close()
    shutil.rmtree(root / "second")
    client.until("/", "1 sweep,")
    assert client.get(address).status == 404


def test_readers_share_one_reading_and_one_drawing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    done: Counter[str] = Counter()

    def counted(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            done[name] += 1
            return work(*args, **options)

        return call

    monkeypatch.setattr(pages, "render_report", counted("reports", pages.render_report))
    monkeypatch.setattr(pages.CachedReader, "read", counted("readings", pages.CachedReader.read))
    monkeypatch.setattr(sweep_board, "list_sweep", counted("listed", sweep_board.list_sweep))
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: client.get("/sweep/first").status, range(40)))
    client.until("/sweep/first", '<div class="drawing"')
    assert answers == [200] * 40
    assert done["readings"] == done["listed"] == 1  # of one version of the files
    assert done["reports"] == 2  # without figures, then with them


def test_the_death_of_a_driver_is_news_where_cells_wait(client: Client, root: Path) -> None:
    paths, going = write_live_sweep(root / "second")
    going.write(status=Status.FINISHED, run_seconds=1.0)
    going.close()
    config = {"lr": 0.5, "batch_size": 100, "device": "cpu"}
    driver = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        identity = ProcessIdentity.of(driver.pid)
        command = ["runmanager", "sweep", "lr=0.1,0.01,0.5"]
        write_cells(paths, [plan_cell("5" * 64, "lr=0.5", config)], SweepCommand(command), driver=identity)
        at_work = client.until("/sweep/second", "1 pending")
        assert "No process is at work on it." not in at_work.text
    finally:
        driver.communicate()
    assert "1 pending. No process is at work on it. As of " in client.until("/sweep/second", "No process").text


def test_a_run_at_rest_that_is_edited_is_news(
    client: Client, live: tuple[SweepPaths, RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary_cache, "_SETTLED_NS", 0)
    paths, going = live
    going.append(epoch(5))  # read once more, now that all files count as old
    client.until("/sweep/first", "0.505", below='id="results"')
    (run,) = [run for run in read_sweep(paths).runs if run.record.status is Status.FINISHED]
    edited = msgspec.structs.replace(run.record, status=Status.FAILED, reason=Reason.EXCEPTION, message="edited")
    run.paths.record.write_bytes(encode_record(edited))
    client.until("/", "1 failed")
