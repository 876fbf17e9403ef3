"""Sweeps that are being made, and a client of the server of their folder, for tests."""

import hashlib
import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runmanager.app.ui.pages import Pages
from runmanager.app.ui.sweep_board import SweepBoard
from runmanager.app.ui.web_server import Access, PageServer, WebApp
from runmanager.records.files.paths import SweepPaths
from runmanager.records.host.process import ProcessIdentity
from runmanager.records.run.run_record import EpochRecord, RunRecord
from runmanager.records.run.status import Status
from runmanager.records.settings.signature import short_signature, signature
from runmanager.records.storage.ownership import claim_run
from runmanager.records.storage.run_folder import RunFolder
from runmanager.records.sweep.sweep_record import SweepCommand, plan_cell, write_cells

LIMIT_SECONDS = 60.0
RATES = (0.1, 0.01)


def epoch(number: int) -> EpochRecord:
    """An epoch whose loss names its number: 0.501, 0.502, …"""
    return EpochRecord(
        epoch=number,
        loss=0.5 + number / 1000,
        val_accuracy=0.9,
        epoch_seconds=1.0,
        wall_seconds=1.1,
        run_seconds=1.1 * number,
        samples=1000,
        warmup=number == 1,
    )


def write_live_sweep(folder: Path, *, num_epochs: int = 4) -> tuple[SweepPaths, RunFolder]:
    """Write a sweep of two runs, one finished and one that this process makes, and return the folder of the latter."""
    paths = SweepPaths(folder)
    cells, going = [], None
    for number, rate in enumerate(RATES):
        config = {"lr": rate, "batch_size": 100, "num_workers": 0, "device": "cpu", "seed": 0}
        name = f"lr={rate}-{short_signature(signature(config))}"
        cells.append(plan_cell(signature(config), name, config))
        record = RunRecord(
            name=name,
            signature=signature(config),
            status=Status.RUNNING,
            config=config,
            epochs_planned=9,
            started_at=f"2026-11-01T10:0{number}:00+00:00",
            owner=ProcessIdentity.current(),
        )
        going = claim_run(paths.run(name), record)
        for each in range(1, num_epochs + 1):
            going.append(epoch(each))
        if number == 0:
            going.write(status=Status.FINISHED, ended_at="2026-11-01T10:00:30+00:00", run_seconds=5.0)
            going.close()
    write_cells(paths, cells, SweepCommand(["runmanager", "sweep", "lr=0.1,0.01"], axes={"lr": list(RATES)}))
    assert going is not None
    return paths, going


@dataclass(frozen=True)
class Answer:
    """What the server answered."""

    status: int
    text: str
    headers: http.client.HTTPMessage

    def attribute(self, name: str) -> str:
        """A data attribute of the page's live part."""
        found = re.search(rf'<p id="live"[^>]* data-{name}="([^"]*)"', self.text)
        assert found is not None, self.text[:2000]
        return found[1]


@dataclass
class Client:
    """Asks a server on this machine, by default with its token as a cookie."""

    port: int
    token: str

    def get(self, address: str, *, cookie: bool = True, method: str = "GET", **headers: str) -> Answer:
        """Ask once. `headers` have underscores for hyphens; `Host` is sent as given, and left out where it is empty."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_SECONDS)
        try:
            connection.putrequest(method, address, skip_host="Host" in headers, skip_accept_encoding=True)
            sent = {name.replace("_", "-"): value for name, value in headers.items() if value}
            if cookie:
                sent["Cookie"] = f"runmanager-{self.port}={self.token}"
            for name, value in sent.items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            return Answer(answer.status, answer.read().decode(), answer.headers)
        finally:
            connection.close()

    def until(self, address: str, wanted: str, *, below: str = "<") -> Answer:
        """Ask for news of a page, as its script does, until an answer has the wanted text, `below` another one."""
        seen = drawn = ""
        give_up_at = time.monotonic() + LIMIT_SECONDS
        joint = "&" if "?" in address else "?"
        answer = self.get(address)
        while answer.status == 204 or wanted not in answer.text.partition(below)[2]:
            assert time.monotonic() < give_up_at, f"{wanted!r} is not in {answer.text[:3000]}"
            if answer.status == 200:
                seen, drawn = answer.attribute("version"), answer.attribute("drawn")
            answer = self.get(f"{address}{joint}seen={seen}&drawn={drawn}")
            assert answer.status in (200, 204), answer
        return answer


@contextmanager
def serving(root: Path) -> Iterator[Client]:
    """Serve a folder in this process."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        port = listening.getsockname()[1]
        access = Access("127.0.0.1", port)
        pages = Pages(SweepBoard(root))
        server = PageServer(listening, WebApp(pages, access))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield Client(port, access.token)
        finally:
            server.shutdown()
            thread.join(LIMIT_SECONDS)
            pages.end()


def tree_of(root: Path) -> dict[str, tuple[int, int, str]]:
    """Every file and folder with its time of change, mode and content."""
    found = {}
    for path in [root, *root.rglob("*")]:
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        now = path.lstat()
        found[str(path.relative_to(root))] = now.st_mtime_ns, now.st_mode, content
    return found
