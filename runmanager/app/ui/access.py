"""Who may read: requests to this machine's own names, with the token that the server printed or gave as a cookie."""

import hmac
import re
import secrets
import socket

from werkzeug.wrappers import Request, Response

from runmanager.records.host.addresses import is_address, is_every_address

__all__ = ["TOKEN_FIELD", "Access"]

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
