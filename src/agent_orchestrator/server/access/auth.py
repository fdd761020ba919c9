"""Who may send which requests over TCP. Over the Unix socket, the file's mode decides that.

Three checks in this order: is the request addressed to this server by a page of this server (`Host`, `Origin`: another web page
that the user visits must not reach it), who sends it (`Authorization` or the dashboard's cookie), and may the caller do this. The
cookie, which a browser sends automatically, is only enough together with what a page of this server adds.
"""

from __future__ import annotations

import base64
import ipaddress
import re
import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from urllib.parse import parse_qsl, quote

from agent_orchestrator.base.api_tokens import ROLES, Identity, Tokens
from agent_orchestrator.errors import Denied

LOCAL_IDENTITY = Identity("local", "admin")
"""The identity of callers on the Unix socket."""

_OPEN_ROUTES = (("GET", "/healthz"), ("POST", "/api/login"))
_RESERVED_ROOTS = ("answer", "api", "git", "healthz", "mcp", "metrics", "openapi.json")
_PATH_SEGMENT = re.compile(r"(?!\.)[\w.~@:+=,-]+")
_HOST_HEADER = re.compile(r"(\[[0-9a-f:.]+\]|[\w.-]+)(:[0-9]{1,5})?", re.ASCII)
_SINGLE_HEADERS = (b"host", b"origin", b"authorization", b"content-type", b"sec-fetch-site")
NODE_LINK_PATH = "/api/nodes/link"
"""The path that nodes of the cluster connect to."""
WEBSOCKET_METHOD = "WebSocket"
"""Used in place of a method for opening a WebSocket; the route checks what may be sent in it."""
_PATHS_FOR_ALL_CALLERS = ("/api/logout", "/mcp")
"""Paths open to every known caller; their routes check what each may do there."""
_PRIVATE_OF_SESSION = ("/environment", "/attach", "/window", "/terminal", "/events", "/timeline", "/review")
"""What an agent may not read of its session: secrets, the terminal's input, and unfiltered texts of others."""
_TOKEN_REMEDY = "make a token with `ao token new NAME` and send it as `Authorization: Bearer TOKEN`"


class Unauthorized(Denied):
    """Raised when a request has no valid token or sign-in."""

    category = "unauthorized"
    http_status = 401

    def __init__(self, text: str) -> None:
        super().__init__(text, _TOKEN_REMEDY)


class HostNames:
    """The host names under which this server may be addressed."""

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        bound_hosts = {host.lower() for host in hosts if host}
        self._any_address = any(_is_wildcard(host) for host in bound_hosts)
        self._names = bound_hosts | {"localhost"}
        if self._any_address:
            self._names.add(socket.gethostname().lower())

    def check(self, headers: Mapping[bytes, bytes], *, api: bool, scheme: str = "http") -> None:
        """Raise Denied for a request of a foreign web page: another host name (DNS rebinding) or another origin."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if not self._is_own_host(host):
            raise Denied(
                f"this server is not {host or 'without a name'}",
                "address it as 127.0.0.1 or localhost, or name the host with --host",
            )
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower() != f"{scheme}://{host}":
            raise Denied(
                f"pages of {origin.decode('latin-1')} may not use this server", "open the dashboard of this server"
            )
        if api and headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            raise Denied("pages of another site may not use this server", "open the dashboard of this server")

    def _is_own_host(self, host: str) -> bool:
        """Return whether a Host header names this server."""
        parts = _HOST_HEADER.fullmatch(host)
        if parts is None:
            return False
        name = parts[1].strip("[]")
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self._any_address


def _is_wildcard(host: str) -> bool:
    """Return whether a host is the address 0.0.0.0 or ::."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def is_dashboard(method: str, path: str) -> bool:
    """Return whether this requests the dashboard itself: a file of it, or one of its views. They contain no data."""
    return method == "GET" and path.removeprefix("/").partition("/")[0] not in _RESERVED_ROOTS


def is_safe_path(path: str) -> bool:
    """Return whether the dashboard could have such a view or file; a path with a segment that begins with a dot is rejected."""
    return path == "/" or all(_PATH_SEGMENT.fullmatch(part) for part in path.removesuffix("/").split("/")[1:])


def is_open(method: str, path: str) -> bool:
    """Return whether this needs no identity: health, signing in, the dashboard itself, and a notification's signed link."""
    return (method, path) in _OPEN_ROUTES or is_dashboard(method, path) or is_answer_link(method, path)


def is_answer_link(method: str, path: str) -> bool:
    """Return whether this is a notification's link: its token says what it may do."""
    return method in ("GET", "POST") and path.startswith("/answer/")


def headers_by_name(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the headers by name. Raise Denied if a header that decides access is sent twice: another reader might use the other one."""
    values: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in values and name in _SINGLE_HEADERS:
            raise Denied(f"the header {name.decode()} was sent twice", "send it once")
        values[name] = value
    return values


def cookie_name(headers: Mapping[bytes, bytes], secure: bool) -> str:
    """Return the name of the dashboard's cookie. It contains the port, because browsers share cookies between all ports of a host."""
    port = headers.get(b"host", b"").decode("latin-1").rpartition(":")[2]
    return ("__Host-" if secure else "") + "ao_session" + (f"_{port}" if port.isdecimal() else "")


def actor_of(identity: Identity, user: str = "", peer: str = "") -> str:
    """Return the actor for the log: the user of the Unix socket, the token, the browser, the agent or the node."""
    match identity.kind:
        case "local":
            return f"local {user}"
        case "session":
            return f"agent {identity.session}"
        case "saver":
            return f"node of {identity.session}"
        case "login":
            return f"browser {identity.name}"
        case "anonymous":
            return f"anonymous {peer}"
    return f"{identity.kind} {identity.name}" if identity.name else identity.kind


def is_git(path: str) -> bool:
    """Return whether Git requests a repository; errors are then text that Git shows."""
    return path.startswith("/git/")


def identify(
    tokens: Tokens, headers: Mapping[bytes, bytes], query: bytes = b"", *, secure: bool, git: bool = False
) -> Identity:
    """Return the identity of the caller; Git may send the token as a password. Raise Unauthorized without a valid one. A cookie without
    the page's secret only allows reading.
    """
    if b"authorization" in headers:
        authorization = headers[b"authorization"]
        identity = tokens.check(
            _basic_password(authorization)
            if git and authorization[:6].lower() == b"basic "
            else _bearer_token(authorization)
        )
    elif cookies := sign_in_cookies(headers, secure=secure):
        page = _page_secret(headers, query)
        cookies = sorted(cookies, key=lambda cookie: not tokens.is_of_page(cookie, page))
        cookie, identity = next(
            ((cookie, sign_in) for cookie in cookies if (sign_in := tokens.check_sign_in(cookie))), ("", None)
        )
        if identity is not None and not tokens.is_of_page(cookie, page):
            identity = replace(identity, role=ROLES[0])
    else:
        raise Unauthorized("this needs a token")
    if identity is None:
        raise Unauthorized("this token is not, or no longer, valid")
    return identity


def require_own_page(headers: Mapping[bytes, bytes], method: str) -> None:
    """Raise Denied for a change sent with a cookie unless a page of this server sent it: a form of another site cannot send JSON."""
    if method == "GET":
        return
    if b"origin" not in headers:
        raise Denied("a change by the dashboard's cookie must say its Origin", "use the dashboard, or send a token")
    if method == "POST":
        require_json(headers)


def require_json(headers: Mapping[bytes, bytes]) -> None:
    """Raise Denied unless the body is JSON, which a form cannot send."""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        raise Denied("this must be sent as application/json", "send JSON, with its Content-Type")


def require_permission(identity: Identity, method: str, path: str) -> None:
    """Raise Denied if this identity may not send this request at all; routes for administrators check their role (`need`)."""
    if identity.kind == "session":
        _check_session_request(identity, method, path)
    elif identity.kind == "saver":
        if not is_git(path):
            raise Denied(f"this token brings the work of {identity.session} over and does nothing else", _TOKEN_REMEDY)
    elif identity.kind == "node":
        if (method, path) != (WEBSOCKET_METHOD, NODE_LINK_PATH):
            raise Denied(
                f"the token of node {identity.name} opens its link to the daemon and nothing else", _TOKEN_REMEDY
            )
    elif method not in ("GET", WEBSOCKET_METHOD) and path not in _PATHS_FOR_ALL_CALLERS:
        require_role(identity, "operator")


def has_role(identity: Identity, role: str) -> bool:
    """Return whether the caller has this role, or a higher one."""
    return identity.role is not None and ROLES.index(identity.role) >= ROLES.index(role)


def require_role(identity: Identity, role: str) -> None:
    """Raise Denied if the caller has less than this role."""
    if not has_role(identity, role):
        current = f"role {identity.role}" if identity.role else f"a {identity.kind}'s own token"
        raise Denied(
            f"this needs the role {role}, and you have {current}",
            f"make a token with `ao token new NAME --role {role}`",
        )


_REVIEW_PATH = r"/api/sessions/[^/]+/review"
_TAKEOVER_PATH = re.compile(r"/api/sessions/[^/]+/(environment|attach)")
"""Requests by which an agent could act as another caller: a person's shell, another agent's keyboard."""
_UNFILTERED_TEXT_PATHS = re.compile(r"/api/(events|live|notifications|questions|sessions/[^/]+/(events|timeline))")
"""Requests that return texts of others unfiltered, including those that wait for a person's approval."""
_COORDINATOR_ACTIONS = (
    ("POST", r"/mcp", ""),
    ("POST", r"/api/sessions", ""),
    ("DELETE", r"/api/sessions/[^/]+", ""),
    ("POST", r"/api/sessions/[^/]+/(message|restore|checks)", ""),
    ("POST PATCH DELETE", r"/api/issues(/.*)?", ""),
    ("POST PUT DELETE", r"/api/plans(/.*)?", ""),
    ("POST DELETE", r"/api/sessions/[^/]+/merge", "merge"),
    ("POST", r"/api/sessions/[^/]+/reviewers", "review"),
    ("POST", r"/api/sessions/[^/]+/answer", "answer"),
)
"""What a coordinator may change by the command line: methods, path, and what its project must allow in `coordinator.may`."""
_COORDINATOR_READS = re.compile(
    r"/healthz|/api/(me|agents|projects|sessions|queue|conflicts|usage|backlog|orchestrator|reactions|fixes|config/(schema|help)"
    r"|(issues|plans)(/[^/]+)?"
    r"|sessions/[^/]+(/(status|wait|diff|log|why|usage|work|prompt|messages(/[^/]+)?|checks/[^/]+/log))?)"
)
"""What a coordinator may read; the routes limit it to its project."""


def check_coordinator_request(session: str, may: Collection[str], method: str, path: str) -> None:
    """Raise Denied for what a coordinating agent may not do by the command line: it reads its own project, without texts that wait for a
    person's approval.
    """
    if method == "GET" and _COORDINATOR_READS.fullmatch(path):
        return
    for methods, pattern, extra in _COORDINATOR_ACTIONS:
        if method in methods.split() and re.fullmatch(pattern, path):
            if not extra or extra in may:
                return
            raise Denied(f"{session} may not {extra}", f"a person does, or allows it: coordinator.may: [{extra}]")
    raise Denied(
        f"{session} coordinates, and this is for people", "ask a person; outside of its session `ao` is a person's"
    )


def check_worker_request(session: str, method: str, path: str) -> None:
    """Raise Denied for what a worker agent may not do by the command line: it changes nothing except with its tools, reviews only what it
    was asked to, uses no terminal, reads no environment and no texts that wait for a person's approval.
    """
    is_read = method == "GET" and not _TAKEOVER_PATH.fullmatch(path) and not _UNFILTERED_TEXT_PATHS.fullmatch(path)
    if not is_read and path != "/mcp" and not (method == "POST" and re.fullmatch(_REVIEW_PATH, path)):
        raise Denied(
            f"the agent of {session} asks, and this is for people",
            "ask a person: the event ask in $AO_SPOOL, or the tool ask_person",
        )


def worker_identity(session: str) -> Identity:
    """Return the identity of a worker agent on the Unix socket: that of its user, without the administrator's rights."""
    return Identity("local", "operator", session)


def _check_session_request(identity: Identity, method: str, path: str) -> None:
    """Raise Denied unless an agent reads its own session or reviews a change; the route checks whether it was asked to review it."""
    if method == "POST" and re.fullmatch(_REVIEW_PATH, path):
        return
    if (method == "GET" and path == "/api/me") or path == "/mcp" or is_git(path):
        return
    own_path = f"/api/sessions/{identity.session}"
    rest = path.removeprefix(own_path)
    is_own = path.startswith(own_path) and (not rest or rest.startswith("/"))
    if method != "GET" or not is_own or rest.startswith(_PRIVATE_OF_SESSION):
        raise Denied(
            f"the token of session {identity.session} reads only its own session",
            f"ask for {quote(own_path)}, or use a token made with `ao token new NAME`",
        )


def _bearer_token(value: bytes | None) -> str:
    """Return the token of an Authorization header, or ""."""
    scheme, _, token = (value or b"").decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _basic_password(value: bytes) -> str:
    """Return the password of a basic Authorization header, or ""."""
    try:
        return base64.b64decode(value[6:], validate=True).decode("latin-1").partition(":")[2]
    except ValueError:
        return ""


def _page_secret(headers: Mapping[bytes, bytes], query: bytes) -> str:
    """Return the secret that the dashboard's page adds to the cookie: a header, or a parameter where a browser allows no header."""
    secret = headers.get(b"x-ao-page") or dict(parse_qsl(query)).get(b"page", b"")
    return secret.decode("latin-1")


def sign_in_cookies(headers: Mapping[bytes, bytes], *, secure: bool) -> list[str]:
    """Return the dashboard's cookies. There may be several: a program on another port may set one of that name for a path."""
    expected_name = cookie_name(headers, secure)
    pairs = (part.strip().partition("=") for part in headers.get(b"cookie", b"").decode("latin-1").split(";"))
    return [content.strip('"') for name, _, content in pairs if name == expected_name and content]
