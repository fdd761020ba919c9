"""Who may ask over TCP, and for what. Over the Unix socket the file's mode has answered that already.

Three questions in this order: does the request come from where it says (`Host`, `Origin`: a web page that the user
happens to visit must not reach us), who asks (`Authorization` or the dashboard's cookie), and may they do this.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from urllib.parse import quote, urlsplit

from agent_orchestrator.errors import Denied
from agent_orchestrator.services.tokens import ROLES, Identity, Tokens

COOKIE = "ao_session"
LOCAL = Identity("local", "admin")
"""Whoever opened the Unix socket."""

_OPEN = ("/", "/healthz")
_PRIVATE_OF_SESSION = ("/environment", "/attach", "/terminal")
_TOKEN_REMEDY = "make a token with `ao token new NAME` and send it as `Authorization: Bearer TOKEN`"


class Unauthorized(Denied):
    """Nobody known asks."""

    category = "unauthorized"
    http_status = 401

    def __init__(self, text: str) -> None:
        super().__init__(text, _TOKEN_REMEDY)


class Names:
    """The names under which this server may be addressed."""

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        given = {host.lower() for host in hosts if host}
        self._any_address = any(_is_wildcard(host) for host in given)
        self._names = given | {"localhost"}
        if self._any_address:
            self._names.add(socket.gethostname().lower())

    def check(self, headers: Mapping[bytes, bytes], *, api: bool) -> None:
        """Refuse what a foreign web page sent: another name (DNS rebinding), another origin."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if not self._known(host):
            raise Denied(
                f"this server is not {host or 'without a name'}",
                "address it as 127.0.0.1 or localhost, or name the host with --host",
            )
        origin = headers.get(b"origin")
        if origin is not None and urlsplit(origin.decode("latin-1").lower()).netloc != host:
            raise Denied(
                f"pages of {origin.decode('latin-1')} may not use this server", "open the dashboard of this server"
            )
        if api and headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            raise Denied("pages of another site may not use this server", "open the dashboard of this server")

    def _known(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self._any_address


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def is_open(path: str) -> bool:
    """Paths that need no token: health, and the page with its static files."""
    return path in _OPEN or path.startswith("/static/")


def identify(tokens: Tokens, headers: Mapping[bytes, bytes]) -> Identity:
    """Who asks."""
    token = _bearer(headers.get(b"authorization")) or _cookie(headers.get(b"cookie"))
    if not token:
        raise Unauthorized("this needs a token")
    identity = tokens.check(token)
    if identity is None:
        raise Unauthorized("this token is not, or no longer, valid")
    return identity


def allow(identity: Identity, method: str, path: str) -> None:
    """Refuse what this identity may not do at all; routes for administrators say so themselves (`need`)."""
    if identity.kind == "session":
        _allow_session(identity, method, path)
    elif method != "GET":
        need(identity, "operator")


def need(identity: Identity, role: str) -> None:
    """Refuse whoever has less than this role."""
    if identity.role is None or ROLES.index(identity.role) < ROLES.index(role):
        have = f"role {identity.role}" if identity.role else "a session's own token"
        raise Denied(
            f"this needs the role {role}, and you have {have}", f"make a token with `ao token new NAME --role {role}`"
        )


def _allow_session(identity: Identity, method: str, path: str) -> None:
    """An agent may read what concerns its own session and judge a change (whether it was asked to, the route sees), and no more."""
    if method == "POST" and re.fullmatch(r"/api/sessions/[^/]+/review", path):
        return
    own = f"/api/sessions/{identity.session}"
    below = path.removeprefix(own)
    mine = path.startswith(own) and (not below or below.startswith("/"))
    if method != "GET" or not mine or below.startswith(_PRIVATE_OF_SESSION):
        raise Denied(
            f"the token of session {identity.session} reads only its own session",
            f"ask for {quote(own)}, or use a token made with `ao token new NAME`",
        )


def _bearer(value: bytes | None) -> str:
    scheme, _, token = (value or b"").decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _cookie(value: bytes | None) -> str:
    for part in (value or b"").decode("latin-1").split(";"):
        name, _, content = part.strip().partition("=")
        if name == COOKIE:
            return content.strip('"')
    return ""
