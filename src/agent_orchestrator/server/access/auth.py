"""Who may ask over TCP, and for what. Over the Unix socket the file's mode has answered that already.

Three questions in this order: does the request come from where it says (`Host`, `Origin`: a web page that the user
happens to visit must not reach us), who asks (`Authorization` or the dashboard's cookie), and may they do this.
What a browser sends by itself, the cookie, opens only what a page of ours asked for.
"""

from __future__ import annotations

import base64
import ipaddress
import re
import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from urllib.parse import parse_qsl, quote

from agent_orchestrator.config.tokens import ROLES, Identity, Tokens
from agent_orchestrator.errors import Denied

LOCAL = Identity("local", "admin")
"""Whoever opened the Unix socket."""

_OPEN = (("GET", "/healthz"), ("POST", "/api/login"))
_RESERVED = ("answer", "api", "git", "healthz", "mcp", "metrics", "openapi.json")
_SEGMENT = re.compile(r"(?!\.)[\w.~@:+=,-]+")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[\w.-]+)(:[0-9]{1,5})?", re.ASCII)
_ONCE = (b"host", b"origin", b"authorization", b"content-type", b"sec-fetch-site")
LINK = "/api/nodes/link"
"""Where nodes of the cluster dial."""
WEBSOCKET = "WebSocket"
"""Stands for the method where a WebSocket is to be opened; what may be sent in it is for the route to judge."""
_ANYBODYS = ("/api/logout", "/mcp")
"""What is for everybody who is known: what may be done there is for the route to judge."""
_PRIVATE_OF_SESSION = ("/environment", "/attach", "/window", "/terminal", "/events", "/timeline", "/review")
"""What an agent does not see of its own session: secrets, what is typed, and what tells everybody's words as they came."""
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

    def check(self, headers: Mapping[bytes, bytes], *, api: bool, scheme: str = "http") -> None:
        """Refuse what a foreign web page sent: another name (DNS rebinding), another origin."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if not self._known(host):
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

    def _known(self, host: str) -> bool:
        parts = _HOST.fullmatch(host)
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
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def is_shell(method: str, path: str) -> bool:
    """Whether this asks for the dashboard itself: a file of it, or one of its views. There are no data in it."""
    return method == "GET" and path.removeprefix("/").partition("/")[0] not in _RESERVED


def is_plain(path: str) -> bool:
    """Whether the dashboard could have such a view or file; a path that tries to climb out of somewhere is none."""
    return path == "/" or all(_SEGMENT.fullmatch(part) for part in path.removesuffix("/").split("/")[1:])


def is_open(method: str, path: str) -> bool:
    """What needs nobody to be known: health, signing in, the dashboard itself, and a notification's signed link."""
    return (method, path) in _OPEN or is_shell(method, path) or is_answer(method, path)


def is_answer(method: str, path: str) -> bool:
    """Whether it is by a notification's link: what it has in it says what it may do."""
    return method in ("GET", "POST") and path.startswith("/answer/")


def single(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The headers by name. Refuses two of what is decided by: another reader of the request might go by the other."""
    found: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in found and name in _ONCE:
            raise Denied(f"the header {name.decode()} was sent twice", "send it once")
        found[name] = value
    return found


def cookie_name(headers: Mapping[bytes, bytes], secure: bool) -> str:
    """The name of the dashboard's cookie. It has the port in it, for browsers keep one jar for all ports of a host."""
    port = headers.get(b"host", b"").decode("latin-1").rpartition(":")[2]
    return ("__Host-" if secure else "") + "ao_session" + (f"_{port}" if port.isdecimal() else "")


def actor_of(identity: Identity, user: str = "", peer: str = "") -> str:
    """Whom the log names: the user at the other end of the Unix socket, the token, the browser, the agent, the node."""
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
    """Whether Git asks: for a repository, with words that people read in its output."""
    return path.startswith("/git/")


def identify(
    tokens: Tokens, headers: Mapping[bytes, bytes], query: bytes = b"", *, secure: bool, git: bool = False
) -> Identity:
    """Who asks; Git may show the token as a password. A cookie without what our page says besides it is good for looking only."""
    if b"authorization" in headers:
        shown = headers[b"authorization"]
        identity = tokens.check(_password(shown) if git and shown[:6].lower() == b"basic " else _bearer(shown))
    elif cookies := sign_ins(headers, secure=secure):
        page = _page(headers, query)
        cookies = sorted(cookies, key=lambda cookie: not tokens.is_of_page(cookie, page))
        cookie, identity = next(
            ((cookie, known) for cookie in cookies if (known := tokens.check_sign_in(cookie))), ("", None)
        )
        if identity is not None and not tokens.is_of_page(cookie, page):
            identity = replace(identity, role=ROLES[0])
    else:
        raise Unauthorized("this needs a token")
    if identity is None:
        raise Unauthorized("this token is not, or no longer, valid")
    return identity


def check_page(headers: Mapping[bytes, bytes], method: str) -> None:
    """Refuse a change that a browser sent with its cookie, unless a page of ours asked for it: a form of another site cannot send JSON."""
    if method == "GET":
        return
    if b"origin" not in headers:
        raise Denied("a change by the dashboard's cookie must say its Origin", "use the dashboard, or send a token")
    if method == "POST":
        need_json(headers)


def need_json(headers: Mapping[bytes, bytes]) -> None:
    """Refuse what a form could send."""
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        raise Denied("this must be sent as application/json", "send JSON, with its Content-Type")


def allow(identity: Identity, method: str, path: str) -> None:
    """Refuse what this identity may not do at all; routes for administrators say so themselves (`need`)."""
    if identity.kind == "session":
        _allow_session(identity, method, path)
    elif identity.kind == "saver":
        if not is_git(path):
            raise Denied(f"this token brings the work of {identity.session} over and does nothing else", _TOKEN_REMEDY)
    elif identity.kind == "node":
        if (method, path) != (WEBSOCKET, LINK):
            raise Denied(
                f"the token of node {identity.name} opens its link to the daemon and nothing else", _TOKEN_REMEDY
            )
    elif method not in ("GET", WEBSOCKET) and path not in _ANYBODYS:
        need(identity, "operator")


def has(identity: Identity, role: str) -> bool:
    """Whether somebody has this role, or a higher one."""
    return identity.role is not None and ROLES.index(identity.role) >= ROLES.index(role)


def need(identity: Identity, role: str) -> None:
    """Refuse whoever has less than this role."""
    if not has(identity, role):
        have = f"role {identity.role}" if identity.role else f"a {identity.kind}'s own token"
        raise Denied(
            f"this needs the role {role}, and you have {have}", f"make a token with `ao token new NAME --role {role}`"
        )


_JUDGING = r"/api/sessions/[^/]+/review"
_TAKING = re.compile(r"/api/sessions/[^/]+/(environment|attach)")
"""By these one becomes somebody else: a shell as a person's, another agent's keyboard."""
_TELLING = re.compile(r"/api/(events|live|notifications|questions|sessions/[^/]+/(events|timeline))")
"""By these everybody's words are told as they came, those too that wait for a person's leave."""
_COORDINATING = (
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
_READING = re.compile(
    r"/healthz|/api/(me|agents|projects|sessions|queue|conflicts|usage|backlog|orchestrator|reactions|fixes|config/(schema|help)"
    r"|(issues|plans)(/[^/]+)?"
    r"|sessions/[^/]+(/(status|wait|diff|log|why|usage|work|prompt|messages(/[^/]+)?|checks/[^/]+/log))?)"
)
"""What it may read; the routes keep to its project."""


def allow_coordinator(session: str, may: Collection[str], method: str, path: str) -> None:
    """Refuse what a coordinating agent, who asks by the command line, may not do: what it reads is of its project, and of nobody's words
    that wait for a person's leave."""
    if method == "GET" and _READING.fullmatch(path):
        return
    for methods, pattern, extra in _COORDINATING:
        if method in methods.split() and re.fullmatch(pattern, path):
            if not extra or extra in may:
                return
            raise Denied(f"{session} may not {extra}", f"a person does, or allows it: coordinator.may: [{extra}]")
    raise Denied(
        f"{session} coordinates, and this is for people", "ask a person; outside of its session `ao` is a person's"
    )


def allow_worker(session: str, method: str, path: str) -> None:
    """Refuse what an agent that does not coordinate may not do by the command line: it changes nothing but what its tools do, and
    judges what it was asked to; it takes no session's terminal, and nobody's environment, and reads no words that wait for a person."""
    looks = method == "GET" and not _TAKING.fullmatch(path) and not _TELLING.fullmatch(path)
    if not looks and path != "/mcp" and not (method == "POST" and re.fullmatch(_JUDGING, path)):
        raise Denied(
            f"the agent of {session} asks, and this is for people",
            "ask a person: the event ask in $AO_SPOOL, or the tool ask_person",
        )


def looking(session: str) -> Identity:
    """Whoever opened the Unix socket, where the agent of this session says who it is: what is for administrators is not for it."""
    return Identity("local", "operator", session)


def _allow_session(identity: Identity, method: str, path: str) -> None:
    """An agent may read what concerns its own session and judge a change (whether it was asked to, the route sees), and no more."""
    if method == "POST" and re.fullmatch(_JUDGING, path):
        return
    if (method == "GET" and path == "/api/me") or path == "/mcp" or is_git(path):
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


def _password(value: bytes) -> str:
    try:
        return base64.b64decode(value[6:], validate=True).decode("latin-1").partition(":")[2]
    except ValueError:
        return ""


def _page(headers: Mapping[bytes, bytes], query: bytes) -> str:
    """What our page says besides the cookie; in the address where a browser lets it set no header."""
    shown = headers.get(b"x-ao-page") or dict(parse_qsl(query)).get(b"page", b"")
    return shown.decode("latin-1")


def sign_ins(headers: Mapping[bytes, bytes], *, secure: bool) -> list[str]:
    """The dashboard's cookies. There may be several: a program on another port may set one of that name, for a path."""
    wanted = cookie_name(headers, secure)
    pairs = (part.strip().partition("=") for part in headers.get(b"cookie", b"").decode("latin-1").split(";"))
    return [content.strip('"') for name, _, content in pairs if name == wanted and content]
