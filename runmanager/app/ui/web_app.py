"""The requests that the server answers: GET and HEAD of its pages, each with the headers that keep a page safe."""

import hmac
import re
import secrets
import socket
import sys
import threading
from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING

from werkzeug.wrappers import Request, Response

from runmanager.app.ui.pages import Pages, View
from runmanager.app.ui.sweep_board import message_page
from runmanager.records.host.addresses import is_address, is_every_address
from runmanager.records.host.standard_streams import print_line
from runmanager.text import error_line

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment


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
