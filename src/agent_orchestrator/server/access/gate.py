"""What every request passes first: from where, who, how much. The sessions list, asked for most, is answered right here.

So are webhooks, and the dashboard itself. Whoever is signed out, by himself or after 30 days, or whose token is revoked, loses what is
open: streams and terminals.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from time import monotonic
from urllib.parse import quote, unquote

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent_orchestrator.base.text.redaction import KNOWN
from agent_orchestrator.config.projects.projects import NOWHERE, Context
from agent_orchestrator.config.tokens import Identity
from agent_orchestrator.core.actor import Behalf, acting
from agent_orchestrator.core.reactions import COORDINATOR
from agent_orchestrator.errors import AoError, NotFound, Temporary, UsageError, machine_short
from agent_orchestrator.server.access import auth
from agent_orchestrator.server.access.audit import accounting
from agent_orchestrator.server.access.callers import LONGEST_KEY, context_of, scope_of
from agent_orchestrator.server.access.peers import user_name
from agent_orchestrator.server.access.redaction import without_secrets
from agent_orchestrator.server.access.refusals import Refusals, peer_of
from agent_orchestrator.server.dashboard_files import Page
from agent_orchestrator.server.schema import problems
from agent_orchestrator.server.services import Services
from agent_orchestrator.views.traffic import UNKNOWN

BODY_LIMIT = 1 << 22
"""Room for the longest message there may be, however JSON writes it; what a message may hold is for the service to say."""
_LARGER = {"/api/events/replay": 16, "/api/webhooks/github": 6, "/api/webhooks/gitlab": 6}
"""Where so many times the limit is taken: a recorded log is long, and so is what forges may send."""
_WEBHOOKS = "/api/webhooks/"
_BUTTONS = f"{_WEBHOOKS}slack"
"""What people pressed in Slack: seldom, and answered by its route."""
_ANSWERED_HERE = ("/api/sessions", "/mcp", "/openapi.json")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SMALL_LIMIT = 1 << 13
_LOOK_AGAIN = 60.0
_STRANGERS = 16
"""Requests with a body that are taken at once from people not known yet: bodies are kept in memory until they are judged."""
_DRAIN_LIMIT = 1 << 25

log = structlog.get_logger(__name__)


class TooLarge(UsageError):
    """The request's body is larger than anything we take."""

    http_status = 413

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the body is larger than {limit} bytes", "send less; a long text may be a file in the repository"
        )


class Gate:
    """An ASGI app in front of the real one. `trusted`: the requests come over the Unix socket."""

    def __init__(
        self,
        app: ASGIApp,
        services: Services,
        refusals: Refusals,
        *,
        trusted: bool,
        hosts: Iterable[str] = (),
        body_limit: int = BODY_LIMIT,
    ) -> None:
        self._app = app
        self._services = services
        self._refusals = refusals
        self._trusted = trusted
        self._page = Page()
        self._names = auth.Names(hosts)
        self._body_limit = body_limit
        self._etags: dict[str | None, tuple[bytes, bytes]] = {}
        self._open: dict[str, set[asyncio.Event]] = {}
        self._strangers = 0
        services.tokens.on_end.append(self._end)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        with acting(self._asker(scope)) as behalf:
            await self._answer(behalf, scope, receive, send)

    def _asker(self, scope: Scope) -> str:
        """Who asks, before he has shown a token."""
        if self._trusted:
            return auth.actor_of(auth.LOCAL, scope.get("state", {}).get("user") or user_name(os.getuid()))
        return auth.actor_of(Identity("anonymous"), peer=peer_of(scope))

    async def _answer(self, behalf: Behalf, scope: Scope, receive: Receive, send: Send) -> None:
        started, began = False, monotonic()

        async def noting(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                self._services.traffic.count(*_route(scope), message["status"], monotonic() - began)
            started = True
            await clean(_private(message))

        clean = without_secrets(scope, send)
        try:
            await self._enter(behalf, scope, receive, noting)
        except Exception as error:
            if scope["type"] == "websocket" and isinstance(error, OSError) and error.errno is None:
                raise  # by this the server says that whoever dialled is gone, and expects it back
            known = error if isinstance(error, AoError) else machine_short(error)
            if known is None:
                # As text: a renderer that shows local variables would write secrets into the log.
                text = "".join(traceback.format_exception(error))
                log.error("request failed", path=quote(scope["path"]), traceback=text)
            else:
                self._refusals.of_error(scope, known)
            if started and known is not None:
                log.warning("answer broken off", path=quote(scope["path"]), error=str(known))
            if not started:
                words = problems.in_words if auth.is_git(scope["path"]) else problems.as_document
                answer = words(known) if known is not None else problems.response(problems.unexpected())
                await answer(scope, receive, noting)

    async def _enter(self, behalf: Behalf, scope: Scope, receive: Receive, send: Send) -> None:
        headers = auth.single(scope["headers"])
        path, method = scope["path"], scope.get("method", auth.WEBSOCKET)
        identity, context = auth.LOCAL, NOWHERE
        if self._trusted:
            context = context_of(headers)
            identity = self._known(behalf, headers, method, path)
        else:
            identity = self._admit(behalf, scope, headers, method)
        if identity.kind == "session" and (facts := self._services.sessions.flow.sessions.get(identity.session or "")):
            current = facts.generation + bool(facts.launch.lost) if facts.remote and facts.launch else 0
            if (identity.generation or 0) < current and not auth.is_git(path):  # which says so in words that Git shows
                raise auth.Unauthorized(f"launch {identity.generation} of {facts.id} is over")
            context = replace(context, only=facts.project)
        if auth.is_shell(method, path):
            await self._show_page(scope, receive, send)
            return
        if method == "GET" and path == "/api/sessions" and (wanted := _wanted(scope["query_string"])) is not None:
            await self._list_sessions(headers, context, wanted, send)
            return
        if method == "POST" and path.startswith(_WEBHOOKS) and path != _BUTTONS:
            with self._one_more_stranger():
                await self._take_webhook(path.removeprefix(_WEBHOOKS), headers, receive, send)
            return
        scope.setdefault("state", {}).update(identity=identity, context=context)
        scope["headers"] = _own_key(scope["headers"], behalf.actor)
        send = accounting(self._services, behalf, scope, send)
        if identity.kind == "anonymous" and method == "POST":
            with nullcontext() if _is_small(path) else self._one_more_stranger():
                await self._app(scope, await self._limited(path, headers, receive), send)
            return
        if scope["type"] == "http" and not auth.is_git(path):  # what is pushed goes to the disk as it comes
            receive = await self._limited(path, headers, receive)
            if context is not NOWHERE:
                send = self._with_notices(context, send, trust=not path.startswith("/api/projects"))
        await self._while_known(identity, scope, receive, send)

    def _known(self, behalf: Behalf, headers: Mapping[bytes, bytes], method: str, path: str) -> Identity:
        """Who asks over the Unix socket: its owner, who may show a token to be less than that."""
        if b"authorization" not in headers:
            return self._agent(behalf, headers, method, path) or auth.LOCAL
        identity = auth.identify(self._services.tokens, headers, secure=False, git=auth.is_git(path))
        behalf.actor = auth.actor_of(identity)
        if not auth.is_open(method, path):
            auth.allow(identity, method, path)
        return identity

    def _agent(self, behalf: Behalf, headers: Mapping[bytes, bytes], method: str, path: str) -> Identity | None:
        """The agent whose command this is; none: somebody else's. One that does not coordinate may look, as whom it runs as."""
        token = headers.get(b"x-ao-token")
        known = self._services.tokens.check(unquote(token.decode("latin-1"))) if token else None
        if known is None or known.session is None:
            return None
        sessions = self._services.sessions
        facts = sessions.flow.sessions.get(known.session)
        if facts is None or facts.spec.kind != COORDINATOR:
            behalf.actor = auth.actor_of(known)
            auth.allow_worker(known.session, method, path)
            if path == "/mcp":  # its tools are its own, whomever else it names
                return known
            return auth.looking(known.session)
        behalf.actor = auth.actor_of(known)
        auth.allow_coordinator(facts.id, sessions.plugins.project(facts.project).coordinator.may, method, path)
        if method != "GET" and path != "/mcp":  # whose launch is over has nothing to say any more
            self._services.reporting.check(facts.id, known.generation or 0)
        return replace(known, name=f"session {facts.id}")

    @contextmanager
    def _one_more_stranger(self) -> Iterator[None]:
        if self._strangers >= _STRANGERS:
            raise Temporary("too many who are not known ask at once", "try again")
        self._strangers += 1
        try:
            yield
        finally:
            self._strangers -= 1

    async def _take_webhook(self, name: str, headers: Mapping[bytes, bytes], receive: Receive, send: Send) -> None:
        """As its route is described: taken here, because forges send them by the thousand."""
        body = await self._whole(self._body_limit * _LARGER.get(_WEBHOOKS + name, 1), headers, receive)
        if body is None:
            return
        words = {key.decode("latin-1"): value.decode("latin-1") for key, value in headers.items()}
        taken = b'{"taken":true}' if await self._services.webhooks.receive(name, words, body) else b'{"taken":false}'
        answer = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(taken))]
        await send({"type": "http.response.start", "status": 202, "headers": answer})
        await send({"type": "http.response.body", "body": taken})

    async def _whole(self, limit: int, headers: Mapping[bytes, bytes], receive: Receive) -> bytes | None:
        """A body of at most so many bytes; none: whoever sent it has hung up."""
        announced = headers.get(b"content-length", b"0")
        body, more = bytearray(), True
        while more:
            if len(body) > limit or (announced.isdigit() and int(announced) > limit):
                await _drain(receive)
                raise TooLarge(limit)
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False)
        return bytes(body)

    def _admit(self, behalf: Behalf, scope: Scope, headers: Mapping[bytes, bytes], method: str) -> Identity:
        path, secure = scope["path"], scope["scheme"] in ("https", "wss")
        if method == "POST" and path.startswith(_WEBHOOKS):
            behalf.actor = f"webhook {path.removeprefix(_WEBHOOKS)[:40]}"
            return Identity("anonymous")  # whatever name it is reached by: who sends it signs it
        linked = auth.is_answer(method, path)
        api = not auth.is_shell(method, path) and path != "/healthz" and not (linked and method == "GET")
        self._names.check(headers, api=api, scheme="https" if secure else "http")
        if auth.is_open(method, path):
            if method == "POST" and not linked:
                auth.need_json(headers)
            return Identity("anonymous")
        query = scope["query_string"]
        identity = auth.identify(self._services.tokens, headers, query, secure=secure, git=auth.is_git(path))
        behalf.actor = auth.actor_of(identity)
        if identity.kind == "login":
            auth.check_page(headers, method)
        auth.allow(identity, method, path)
        return identity

    async def _show_page(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if not auth.is_plain(path):
            self._refusals.note(scope, "the dashboard has no such path")
            raise NotFound(f"there is nothing at {path[:200]}", "the dashboard is at /")
        await self._page(scope, receive, send)

    # -- while somebody is known ---------------------------------------------------------------------------------------

    def _end(self, gone: frozenset[str]) -> None:
        for id_ in gone:
            for ended in self._open.get(id_, ()):
                ended.set()

    async def _while_known(self, identity: Identity, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and take the asker for gone once his token or sign-in is."""
        if identity.id is None:
            await self._app(scope, receive, send)
            return
        ended = asyncio.Event()
        waiting = self._open.setdefault(identity.id, set())
        waiting.add(ended)
        expires = self._services.tokens.left(identity.id) is not None
        over_time = asyncio.ensure_future(self._at_expiry(identity.id, ended)) if expires else None

        async def until_ended() -> Message:
            ways = [asyncio.ensure_future(receive()), asyncio.ensure_future(ended.wait())]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                if ended.is_set():
                    return {"type": f"{scope['type']}.disconnect", "code": 1008}
                return ways[0].result()  # type: ignore[return-value]
            finally:
                for way in ways:
                    way.cancel()

        async def saying_why(message: Message) -> None:
            if ended.is_set() and message["type"] == "websocket.close":
                message = {**message, "code": 1008, "reason": "signed out"}
            await send(message)

        try:
            await self._app(scope, until_ended, saying_why)
        finally:
            if over_time:
                over_time.cancel()
            waiting.discard(ended)
            if not waiting:
                self._open.pop(identity.id, None)

    async def _at_expiry(self, id_: str, ended: asyncio.Event) -> None:
        """Say that a sign-in has ended when its time is up, within a minute where the machine slept meanwhile."""
        while left := self._services.tokens.left(id_):  # noqa: ASYNC110 - nothing tells that time has passed
            await asyncio.sleep(min(left, _LOOK_AGAIN))
        if left is not None:
            ended.set()

    async def _list_sessions(self, headers: Mapping[bytes, bytes], context: Context, wanted: str, send: Send) -> None:
        project = await scope_of(self._services, context, wanted or None, wanted == "*")
        body = self._services.sessions.list_body(project)
        etag = self._etag(project, body)
        fresh = headers.get(b"if-none-match") == etag
        answer = [(b"content-type", b"application/json"), (b"etag", etag), (b"cache-control", b"no-cache")]
        if not fresh:
            answer.append((b"content-length", b"%d" % len(body)))
        answer += self._notices(context)
        await send({"type": "http.response.start", "status": 304 if fresh else 200, "headers": answer})
        await send({"type": "http.response.body", "body": b"" if fresh else body})

    def _etag(self, project: str | None, body: bytes) -> bytes:
        """The body's name, made once for each body: the service hands out the same object until something changes."""
        known = self._etags.get(project)
        if known is None or known[0] is not body:
            known = (body, b'"%s"' % hashlib.blake2b(body, digest_size=12).hexdigest().encode())
            self._etags[project] = known
        return known[1]

    def _notices(self, context: Context, *, trust: bool = True) -> list[tuple[bytes, bytes]]:
        notices = [] if context is NOWHERE else self._services.projects.notices(context, trust=trust)
        return [(b"x-ao-notice", ",".join(quote(KNOWN.text(notice)) for notice in notices).encode())] if notices else []

    def _with_notices(self, context: Context, send: Send, *, trust: bool) -> Send:
        """`trust`: also say whose commands wait for trust; the routes of projects say so themselves."""

        async def with_notices(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:  # an error is one line
                message["headers"] = [*message.get("headers", ()), *self._notices(context, trust=trust)]
            await send(message)

        return with_notices

    async def _limited(self, path: str, headers: Mapping[bytes, bytes], receive: Receive) -> Receive:
        limit = _SMALL_LIMIT if _is_small(path) else self._body_limit * _LARGER.get(path, 1)
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > limit:
            await _drain(receive)
            raise TooLarge(limit)
        taken = 0

        async def limited() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > limit:
                await _drain(receive)
                from fastapi import HTTPException  # who reads the body has loaded it; no other passes through there

                raise HTTPException(413, str(TooLarge(limit)))
            return message

        return limited


def _is_small(path: str) -> bool:
    """Signing in, and a link's answer: so little is sent there that whoever holds on to large bodies elsewhere keeps nobody from it."""
    return path == "/api/login" or auth.is_answer("POST", path)


def _own_key(headers: Iterable[tuple[bytes, bytes]], actor: str) -> list[tuple[bytes, bytes]]:
    """The headers, with a caller's key made one that is his alone: nobody else's is the same, nor one of the daemon's own."""

    def own(name: bytes, value: bytes) -> bytes:
        if name != b"idempotency-key" or not 0 < len(value) <= LONGEST_KEY:
            return value
        return hashlib.sha256(actor.encode() + b"\n" + value).hexdigest()[:40].encode()

    return [(name, own(name, value)) for name, value in headers]


def _private(message: Message) -> Message:
    """What says nothing of caches is kept in none: it was for whoever asked."""
    if message["type"] == "http.response.start":
        headers = message.setdefault("headers", [])
        if not any(name == b"cache-control" for name, _ in headers):
            message["headers"] = [*headers, (b"cache-control", b"no-store")]
    return message


async def _drain(receive: Receive) -> None:
    """Take the rest of a body and drop it: who is cut off while he still sends may not see the answer."""
    dropped, more = 0, True
    while more and dropped < _DRAIN_LIMIT:
        message = await receive()
        dropped += len(message.get("body", b""))
        more = message.get("more_body", False)


def _route(scope: Scope) -> tuple[str, str]:
    """Method and route of a request, of which there are only so many, whatever is asked."""
    path, method = scope["path"], scope["method"]
    if (known := scope.get("route")) is not None:
        route = known.path
    elif path.startswith(_WEBHOOKS):
        route = f"{_WEBHOOKS}{{name}}"
    elif auth.is_git(path):
        route = "/git"
    elif path in _ANSWERED_HERE:
        route = path
    else:
        route = "/" if auth.is_shell(method, path) else UNKNOWN
    return method if method in _METHODS else UNKNOWN, route


def _wanted(query: bytes) -> str | None:
    """The project that a plain query names: "" for that of the folder, "*" for all; none if it is for the route to judge."""
    if not query:
        return ""
    if query == b"all=1":
        return "*"
    name, _, value = query.partition(b"=")
    plain = value.replace(b"-", b"").replace(b"_", b"").replace(b".", b"").isalnum()
    return value.decode() if name == b"project" and plain and value.isascii() else None
