"""The server of the pages: GET and HEAD of its pages alone, each with the headers that keep a page safe.

It has a bounded number of threads, and a time limit for every request.
"""

import contextlib
import hmac
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Iterable
from http import HTTPStatus
from socketserver import BaseServer
from typing import TYPE_CHECKING, Any

from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler
from werkzeug.wrappers import Request, Response

from runmanager.app.ui.pages import Pages, View
from runmanager.app.ui.sweep_board import message_page
from runmanager.records.host.addresses import is_address, is_every_address
from runmanager.records.host.standard_streams import print_line
from runmanager.text import error_line

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

TOKEN_FIELD = "token"  # noqa: S105  # its name
_LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))
_HOST = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^\s:@/\[\]]+))(?::[0-9]{1,5})?")


class Access:
    """Decides by the `Host` header, the token and the cookie.

    A page of another site whose name is made to lead here (DNS rebinding) sends that name as `Host`. The port is not
    checked, as it is another one behind `ssh -L`.
    """

    def __init__(self, host: str, port: int) -> None:
        self.token = secrets.token_urlsafe(32)
        # A cookie belongs to all ports of a host: servers side by side must not replace each other's.
        self._cookie = f"runmanager-{port}"
        self._is_open_to_all = is_every_address(host)
        self._names = {*_LOOPBACK, host.lower(), *([socket.gethostname().lower()] if self._is_open_to_all else [])}

    def is_own_host(self, header: str | None) -> bool:
        """Whether the `Host` header names this machine as this server may be called."""
        found = _HOST.fullmatch(header or "")
        if found is None:
            return False
        name = (found[1] or found[2]).lower()
        return name in self._names or (self._is_open_to_all and is_address(name))

    def admits(self, request: Request) -> bool:
        """Whether the request has the token, in its address or as the cookie."""
        return self._has_token_in_address(request) or self._is_token(request.cookies.get(self._cookie))

    def remember(self, request: Request, response: Response) -> None:
        """Give the token as a cookie to a reader who came with it in the address."""
        if self._has_token_in_address(request):
            response.set_cookie(self._cookie, self.token, httponly=True, samesite="Strict", path="/")

    def _has_token_in_address(self, request: Request) -> bool:
        return self._is_token(request.args.get(TOKEN_FIELD))

    def _is_token(self, given: str | None) -> bool:
        # In a time that does not depend on how much of it is right.
        return given is not None and hmac.compare_digest(given.encode(errors="replace"), self.token.encode())


SAFETY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""The headers of every answer; a page has a policy of its own."""

_METHODS = ("GET", "HEAD")
_MAX_ADDRESS = 8192  # bytes
_SWEEP = "/sweep/"
_OPEN_THE_ADDRESS = "These pages need the token that `runmanager ui` printed with its address; open that address."


class WebApp:
    """A WSGI application over `pages`, for readers whom `access` admits. No address is ever read as a path of files."""

    def __init__(self, pages: Pages, access: Access) -> None:
        self._pages = pages
        self._access = access
        self._faults: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        request = Request(environ, populate_request=False)
        try:
            response = self._answer(request)
        except Exception as error:  # of this request alone: the server stays
            response = self._failure(error)
        for name, value in SAFETY_HEADERS.items():
            response.headers.setdefault(name, value)
        return response(environ, start_response)

    def _answer(self, request: Request) -> Response:
        environ = request.environ
        if not self._access.is_own_host(environ.get("HTTP_HOST")):
            return _line(HTTPStatus.FORBIDDEN, "The Host header must name this machine, got another host.")
        if request.method not in _METHODS:
            refused = _line(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET and HEAD are answered: these pages are read-only.")
            refused.headers["Allow"] = ", ".join(_METHODS)
            return refused
        if len(environ.get("REQUEST_URI", "")) > _MAX_ADDRESS:
            return _line(HTTPStatus.REQUEST_URI_TOO_LONG, f"An address must have at most {_MAX_ADDRESS:,} bytes.")
        if not environ.get("QUERY_STRING", "").isascii():
            return _line(HTTPStatus.BAD_REQUEST, "An address must be in ASCII, with other characters as %XX.")
        if not self._access.admits(request):
            return _message(HTTPStatus.FORBIDDEN, "Token needed", [_OPEN_THE_ADDRESS], asks=True)
        response = self._page(request)
        self._access.remember(request, response)
        return response

    def _page(self, request: Request) -> Response:
        view = self._view(request)
        if view is None:
            return _message(
                HTTPStatus.NOT_FOUND, "Not found", ["There is no sweep of this name; it may have been moved."]
            )
        seen = request.args.get("seen")
        if seen is None:
            return _html(view.html(), view)
        news = view.news(seen, request.args.get("drawn", ""))
        return Response(status=HTTPStatus.NO_CONTENT) if news is None else _html(news, view)

    def _view(self, request: Request) -> View | None:
        """What the address shows; None if that does not exist."""
        if request.path == "/":
            return self._pages.listing()
        if request.path == "/compare":
            return self._pages.comparison(request.args.get("baseline", ""), request.args.get("candidate", ""))
        if request.path.startswith(_SWEEP):
            return self._pages.sweep(request.path.removeprefix(_SWEEP))
        return None

    def _failure(self, error: Exception) -> Response:
        fault = error_line(error)
        with self._lock:
            is_new = fault not in self._faults and len(self._faults) < 100
            self._faults.add(fault)
        if is_new:
            print_line(f"A page could not be shown ({fault}); the others are.", sys.stderr)
        return _message(HTTPStatus.INTERNAL_SERVER_ERROR, "Not shown", [f"This page could not be made: {fault}"])


def _html(text: str, view: View) -> Response:
    response = Response(text, mimetype="text/html")
    response.headers["Content-Security-Policy"] = f"{view.page.policy}; frame-ancestors 'none'"
    return response


def _message(status: HTTPStatus, title: str, lines: list[str], *, asks: bool = False) -> Response:
    page = message_page(title, lines, asks=asks)
    response = Response(page.with_live(""), status=status, mimetype="text/html")
    response.headers["Content-Security-Policy"] = f"{page.policy}; frame-ancestors 'none'"
    return response


def _line(status: HTTPStatus, text: str) -> Response:
    return Response(f"{text}\n", status=status, mimetype="text/plain")


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
