"""The server of the pages: a bounded number of threads, and a time limit for every request."""

import contextlib
import socket
import sys
import threading
import time
from http import HTTPStatus
from socketserver import BaseServer
from typing import TYPE_CHECKING, Any

from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from runmanager.app.ui.web_app import SAFETY_HEADERS
from runmanager.records.host.standard_streams import print_line
from runmanager.text import error_line

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

_MAX_THREADS = 32
_ARRIVAL_SECONDS = 10.0  # for the request to arrive, and for the client to take the answer
_CROWDED_SECONDS = 1.0  # for the request to arrive while others wait
_ANSWER_SECONDS = 120.0  # for all of it
_CHECK_SECONDS = 0.2
_DRAINED_BYTES = 1 << 20


class PageServer(ThreadedWSGIServer):
    """Serves `app` on a socket that listens already, until it is interrupted.

    Each request has a thread, and further ones wait in the queue of the system. A client that does not send its
    request, or does not read the answer, is cut off, so none can hold the others up.
    """

    def __init__(self, listening: socket.socket, app: "WSGIApplication") -> None:
        host, port = listening.getsockname()[:2]
        super().__init__(host, port, app, _Handler, fd=listening.fileno())
        self._slots = threading.BoundedSemaphore(_MAX_THREADS)
        self._open: dict[socket.socket, tuple[float, bool]] = {}  # since when, and whether the request has arrived

    def serve_forever(self, poll_interval: float = _CHECK_SECONDS) -> None:
        """Serve until an exception, such as Ctrl-C, which werkzeug's own method would hide."""
        try:
            BaseServer.serve_forever(self, poll_interval)
        finally:
            self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        while not self._slots.acquire(timeout=_CHECK_SECONDS):
            self._cut_off(_CROWDED_SECONDS)
        self._open[request] = time.monotonic(), False
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._finished(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._finished(request)

    def service_actions(self) -> None:
        self._cut_off(_ARRIVAL_SECONDS)

    def arrived(self, request: socket.socket) -> None:
        """Note that a request is complete and is being answered."""
        if request in self._open:
            self._open[request] = self._open[request][0], True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what a thread ended with, unless the client has just gone."""
        error = sys.exception()
        if isinstance(error, Exception) and not isinstance(error, OSError):
            print_line(f"A request was not answered ({error_line(error)}).", sys.stderr)

    def _finished(self, request: socket.socket) -> None:
        self._open.pop(request, None)
        self._slots.release()

    def _cut_off(self, arrival_seconds: float) -> None:
        """End the connections that take too long; their threads then end by themselves."""
        now = time.monotonic()
        for request, (since, has_arrived) in list(self._open.items()):
            if now - since > (_ANSWER_SECONDS if has_arrived else arrival_seconds):
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)


class _Handler(WSGIRequestHandler):
    """Answers one request in silence: addresses have the token, and a log would keep it."""

    server: PageServer
    timeout = _ARRIVAL_SECONDS  # for each reading, and for the writing of the answer

    def run_wsgi(self) -> None:
        self.server.arrived(self.connection)
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RD)  # a body is not read, and must not be waited for
        super().run_wsgi()

    def version_string(self) -> str:
        return "runmanager"

    def log(self, type: str, message: str, *args: Any) -> None:
        pass

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what is not a request, such as an address without end, with the headers of every answer."""
        body = f"{message or HTTPStatus(code).phrase}\n".encode()
        self.send_response(code, message)
        for name, value in {**SAFETY_HEADERS, "Content-Type": "text/plain; charset=utf-8"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self._drain()

    def _drain(self) -> None:
        """Read some of what is left: closing before would reset the connection, and the answer would be lost."""
        left = _DRAINED_BYTES
        with contextlib.suppress(OSError):
            self.connection.settimeout(_CHECK_SECONDS)
            self.connection.shutdown(socket.SHUT_WR)
            while left > 0 and (part := self.connection.recv(1 << 16)):
                left -= len(part)
