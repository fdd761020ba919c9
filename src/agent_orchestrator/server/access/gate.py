"""The checks that every request passes first: where it comes from, who sends it, and limits on its size and number.

Three kinds of requests are answered right here: the sessions list (the most frequent), webhooks, and the dashboard's files. If a
caller signs out, a sign-in expires or a token is revoked, the caller's open streams and terminals are closed.
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

from agent_orchestrator.base.api_tokens import Identity
from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.config.projects.projects import NO_CONTEXT, CommandContext
from agent_orchestrator.core.actor import Actor, acting_as
from agent_orchestrator.core.facts import COORDINATOR_KIND
from agent_orchestrator.errors import AoError, NotFound, Temporary, UsageError, resource_shortage
from agent_orchestrator.server.access import auth
from agent_orchestrator.server.access.audit import recording_send
from agent_orchestrator.server.access.peers import user_name
from agent_orchestrator.server.access.redaction import redacting_send
from agent_orchestrator.server.access.refusals import Refusals, peer_of
from agent_orchestrator.server.access.request_context import MAX_KEY_LENGTH, context_of, resolve_listed_project
from agent_orchestrator.server.dashboard_files import Dashboard
from agent_orchestrator.server.schema import problems
from agent_orchestrator.server.services import Services
from agent_orchestrator.views.traffic import UNMATCHED_ROUTE

MAX_BODY_BYTES = 1 << 22
"""Bytes of a request's body: enough for the longest message however JSON escapes it. The service checks the message's own limit."""
_LIMIT_FACTORS = {"/api/events/replay": 16, "/api/webhooks/github": 6, "/api/webhooks/gitlab": 6}
"""Paths with a multiple of the body limit: a recorded log is long, and forges may send large bodies."""
_WEBHOOKS = "/api/webhooks/"
_SLACK_BUTTONS = f"{_WEBHOOKS}slack"
"""Buttons that people pressed in Slack: rare, and answered by their route."""
_METRIC_PATHS_OF_GATE = ("/api/sessions", "/mcp", "/openapi.json")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_MAX_SMALL_BODY_BYTES = 1 << 13
_EXPIRY_RECHECK_SECONDS = 60.0
_MAX_ANONYMOUS_REQUESTS = 16
"""How many anonymous requests with a body are processed at once: their bodies are kept in memory until they are checked."""
_MAX_DRAINED_BYTES = 1 << 25

log = structlog.get_logger(__name__)


class RequestTooLarge(UsageError):
    """Raised when a request's body exceeds its limit."""

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
        body_limit: int = MAX_BODY_BYTES,
    ) -> None:
        self._app = app
        self._services = services
        self._refusals = refusals
        self._trusted = trusted
        self._dashboard = Dashboard()
        self._host_names = auth.HostNames(hosts)
        self._body_limit = body_limit
        self._etags: dict[str | None, tuple[bytes, bytes]] = {}
        self._anonymous_count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        with acting_as(self._actor_of_peer(scope)) as behalf:
            await self._answer(behalf, scope, receive, send)

    def _actor_of_peer(self, scope: Scope) -> str:
        """Return the actor for the audit log before the caller has shown a token: the user of the Unix socket, or the address."""
        if self._trusted:
            return auth.actor_of(auth.LOCAL_IDENTITY, scope.get("state", {}).get("user") or user_name(os.getuid()))
        return auth.actor_of(Identity("anonymous"), peer=peer_of(scope))

    async def _answer(self, behalf: Actor, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: count it, remove secrets from the answer, and turn exceptions into problem documents."""
        started, began = False, monotonic()

        async def send_counted(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                self._services.traffic.count(*_route_of(scope), message["status"], monotonic() - began)
            started = True
            await clean(_forbid_caching(message))

        clean = redacting_send(scope, send)
        try:
            await self._identify_and_answer(behalf, scope, receive, send_counted)
        except Exception as error:
            if scope["type"] == "websocket" and isinstance(error, OSError) and error.errno is None:
                raise  # the server raises this if the client is gone, and expects it back
            ao_error = error if isinstance(error, AoError) else resource_shortage(error)
            if ao_error is None:
                # As text: a renderer that shows local variables would write secrets into the log.
                text = "".join(traceback.format_exception(error))
                log.error("request failed", path=quote(scope["path"]), traceback=text)
            else:
                self._refusals.record_error(scope, ao_error)
            if started and ao_error is not None:
                log.warning("answer broken off", path=quote(scope["path"]), error=str(ao_error))
            if not started:
                to_response = problems.error_text_response if auth.is_git(scope["path"]) else problems.error_response
                answer = (
                    to_response(ao_error)
                    if ao_error is not None
                    else problems.document_response(problems.unexpected_error_document())
                )
                await answer(scope, receive, send_counted)

    async def _identify_and_answer(self, behalf: Actor, scope: Scope, receive: Receive, send: Send) -> None:
        """Identify the caller, then answer the request here or pass it to the routes with a limited body."""
        headers = auth.headers_by_name(scope["headers"])
        path, method = scope["path"], scope.get("method", auth.WEBSOCKET_METHOD)
        identity, context = auth.LOCAL_IDENTITY, NO_CONTEXT
        if self._trusted:
            context = context_of(headers)
            identity = self._identify_local(behalf, headers, method, path)
        else:
            identity = self._identify_remote(behalf, scope, headers, method)
        if identity.kind == "session" and (facts := self._services.sessions.flow.sessions.get(identity.session or "")):
            current = facts.generation + bool(facts.launch.loss_reason) if facts.remote and facts.launch else 0
            if (identity.generation or 0) < current and not auth.is_git(path):  # the Git route refuses it itself
                raise auth.Unauthorized(f"launch {identity.generation} of {facts.id} is over")
            context = replace(context, only=facts.project)
        if auth.is_dashboard(method, path):
            await self._serve_dashboard(scope, receive, send)
            return
        if (
            method == "GET"
            and path == "/api/sessions"
            and (query := _project_of_query(scope["query_string"])) is not None
        ):
            await self._list_sessions(headers, context, query, send)
            return
        if method == "POST" and path.startswith(_WEBHOOKS) and path != _SLACK_BUTTONS:
            with self._limit_anonymous():
                await self._receive_webhook(path.removeprefix(_WEBHOOKS), headers, receive, send)
            return
        scope.setdefault("state", {}).update(identity=identity, context=context)
        scope["headers"] = _hash_idempotency_key(scope["headers"], behalf.actor)
        send = recording_send(self._services, behalf, scope, send)
        if identity.kind == "anonymous" and method == "POST":
            with nullcontext() if _is_small(path) else self._limit_anonymous():
                await self._app(scope, await self._limit_body(path, headers, receive), send)
            return
        if scope["type"] == "http" and not auth.is_git(path):  # a push is written to disk as it arrives
            receive = await self._limit_body(path, headers, receive)
            if context is not NO_CONTEXT:
                send = self._with_notices(context, send, trust=not path.startswith("/api/projects"))
        await self._answer_until_revoked(identity, scope, receive, send)

    def _identify_local(self, behalf: Actor, headers: Mapping[bytes, bytes], method: str, path: str) -> Identity:
        """Return the identity of a caller on the Unix socket: its owner, or that of the token it shows."""
        if b"authorization" not in headers:
            return self._identify_agent(behalf, headers, method, path) or auth.LOCAL_IDENTITY
        identity = auth.identify(self._services.tokens, headers, secure=False, git=auth.is_git(path))
        behalf.actor = auth.actor_of(identity)
        if not auth.is_open(method, path):
            auth.require_permission(identity, method, path)
        return identity

    def _identify_agent(self, behalf: Actor, headers: Mapping[bytes, bytes], method: str, path: str) -> Identity | None:
        """Return the identity of the agent whose command this is, or None if it is not an agent's. A worker may only read, as the user it
        runs as.
        """
        token = headers.get(b"x-ao-token")
        identity = self._services.tokens.check(unquote(token.decode("latin-1"))) if token else None
        if identity is None or identity.session is None:
            return None
        sessions = self._services.sessions
        facts = sessions.flow.sessions.get(identity.session)
        if facts is None or facts.spec.kind != COORDINATOR_KIND:
            behalf.actor = auth.actor_of(identity)
            auth.check_worker_request(identity.session, method, path)
            if path == "/mcp":  # the MCP tools act as the agent itself, even if the request names another session
                return identity
            return auth.worker_identity(identity.session)
        behalf.actor = auth.actor_of(identity)
        auth.check_coordinator_request(
            facts.id, self._services.core.settings.project(facts.project).coordinator.may, method, path
        )
        if method != "GET" and path != "/mcp":  # an agent whose launch is over may not change anything
            self._services.reporting.require_current_launch(facts.id, identity.generation or 0)
        return replace(identity, name=f"session {facts.id}")

    @contextmanager
    def _limit_anonymous(self) -> Iterator[None]:
        """Count an anonymous request while it is processed; raise Temporary if there are too many."""
        if self._anonymous_count >= _MAX_ANONYMOUS_REQUESTS:
            raise Temporary("too many who are not known ask at once", "try again")
        self._anonymous_count += 1
        try:
            yield
        finally:
            self._anonymous_count -= 1

    async def _receive_webhook(self, name: str, headers: Mapping[bytes, bytes], receive: Receive, send: Send) -> None:
        """Answer a webhook as its route describes; done here because forges send thousands of them."""
        body = await self._read_body(self._body_limit * _LIMIT_FACTORS.get(_WEBHOOKS + name, 1), headers, receive)
        if body is None:
            return
        text_headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in headers.items()}
        content = (
            b'{"taken":true}' if await self._services.webhooks.receive(name, text_headers, body) else b'{"taken":false}'
        )
        response_headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": 202, "headers": response_headers})
        await send({"type": "http.response.body", "body": content})

    async def _read_body(self, limit: int, headers: Mapping[bytes, bytes], receive: Receive) -> bytes | None:
        """Return a body of at most `limit` bytes, or None if the client disconnected; raise RequestTooLarge beyond that."""
        announced = headers.get(b"content-length", b"0")
        body, more = bytearray(), True
        while more:
            if len(body) > limit or (announced.isdigit() and int(announced) > limit):
                await _drop_body(receive)
                raise RequestTooLarge(limit)
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            more = message.get("more_body", False)
        return bytes(body)

    def _identify_remote(self, behalf: Actor, scope: Scope, headers: Mapping[bytes, bytes], method: str) -> Identity:
        """Check host, origin and permissions of a TCP request and return the identity of its caller."""
        path, secure = scope["path"], scope["scheme"] in ("https", "wss")
        if method == "POST" and path.startswith(_WEBHOOKS):
            behalf.actor = f"webhook {path.removeprefix(_WEBHOOKS)[:40]}"
            return Identity("anonymous")  # under any host name: the sender signs it
        is_link = auth.is_answer_link(method, path)
        api = not auth.is_dashboard(method, path) and path != "/healthz" and not (is_link and method == "GET")
        self._host_names.check(headers, api=api, scheme="https" if secure else "http")
        if auth.is_open(method, path):
            if method == "POST" and not is_link:
                auth.require_json(headers)
            return Identity("anonymous")
        query = scope["query_string"]
        identity = auth.identify(self._services.tokens, headers, query, secure=secure, git=auth.is_git(path))
        behalf.actor = auth.actor_of(identity)
        if identity.kind == "login":
            auth.require_own_page(headers, method)
        auth.require_permission(identity, method, path)
        return identity

    async def _serve_dashboard(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a file of the dashboard; raise NotFound for a path that cannot be one."""
        path = scope["path"]
        if not auth.is_safe_path(path):
            self._refusals.record(scope, "the dashboard has no such path")
            raise NotFound(f"there is nothing at {path[:200]}", "the dashboard is at /")
        await self._dashboard(scope, receive, send)

    # -- revoked and expired callers -----------------------------------------------------------------------------------

    async def _answer_until_revoked(self, identity: Identity, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the app; report a disconnect to it when the caller's token or sign-in ends."""
        if identity.id is None:
            await self._app(scope, receive, send)
            return
        with self._services.tokens.watch_revocation(identity.id) as ended:
            expires = self._services.tokens.seconds_left(identity.id) is not None
            expiry = asyncio.ensure_future(self._end_at_expiry(identity.id, ended)) if expires else None
            try:
                await self._answer_until(ended, scope, receive, send)
            finally:
                if expiry:
                    expiry.cancel()

    async def _answer_until(self, ended: asyncio.Event, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the app; report a disconnect to it once `ended` is set."""

        async def until_ended() -> Message:
            tasks = [asyncio.ensure_future(receive()), asyncio.ensure_future(ended.wait())]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if ended.is_set():
                    return {"type": f"{scope['type']}.disconnect", "code": 1008}
                return tasks[0].result()  # type: ignore[return-value]
            finally:
                for task in tasks:
                    task.cancel()

        async def send_reason(message: Message) -> None:
            if ended.is_set() and message["type"] == "websocket.close":
                message = {**message, "code": 1008, "reason": "signed out"}
            await send(message)

        await self._app(scope, until_ended, send_reason)

    async def _end_at_expiry(self, id_: str, ended: asyncio.Event) -> None:
        """End a request when its sign-in expires, at most a minute late if the machine slept meanwhile."""
        while remaining := self._services.tokens.seconds_left(id_):  # noqa: ASYNC110 - there is no event for the passing of time
            await asyncio.sleep(min(remaining, _EXPIRY_RECHECK_SECONDS))
        if remaining is not None:
            ended.set()

    async def _list_sessions(
        self, headers: Mapping[bytes, bytes], context: CommandContext, project_name: str, send: Send
    ) -> None:
        """Answer with the sessions of a project, or with 304 if the caller has them already."""
        project = await resolve_listed_project(self._services, context, project_name or None, project_name == "*")
        body = self._services.sessions.list_json(project)
        etag = self._etag(project, body)
        is_current = headers.get(b"if-none-match") == etag
        response_headers = [(b"content-type", b"application/json"), (b"etag", etag), (b"cache-control", b"no-cache")]
        if not is_current:
            response_headers.append((b"content-length", b"%d" % len(body)))
        response_headers += self._notice_headers(context)
        await send({"type": "http.response.start", "status": 304 if is_current else 200, "headers": response_headers})
        await send({"type": "http.response.body", "body": b"" if is_current else body})

    def _etag(self, project: str | None, body: bytes) -> bytes:
        """Return the ETag of a body, computed once per body: the service returns the same object until something changes."""
        cached = self._etags.get(project)
        if cached is None or cached[0] is not body:
            cached = (body, b'"%s"' % hashlib.blake2b(body, digest_size=12).hexdigest().encode())
            self._etags[project] = cached
        return cached[1]

    def _notice_headers(self, context: CommandContext, *, trust: bool = True) -> list[tuple[bytes, bytes]]:
        """Return the header with notices for the caller's folder, or no header if there are none."""
        notices = [] if context is NO_CONTEXT else self._services.projects.notices(context, trust=trust)
        return (
            [(b"x-ao-notice", ",".join(quote(REDACTOR.redact_text(notice)) for notice in notices).encode())]
            if notices
            else []
        )

    def _with_notices(self, context: CommandContext, send: Send, *, trust: bool) -> Send:
        """Add notices to a successful answer. `trust`: include projects whose commands wait for trust; the routes of projects report that
        themselves.
        """

        async def with_notices(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:  # an error is one line
                message["headers"] = [*message.get("headers", ()), *self._notice_headers(context, trust=trust)]
            await send(message)

        return with_notices

    async def _limit_body(self, path: str, headers: Mapping[bytes, bytes], receive: Receive) -> Receive:
        """Return a `receive` that fails when the body exceeds its limit; raise RequestTooLarge if its announced length does."""
        limit = _MAX_SMALL_BODY_BYTES if _is_small(path) else self._body_limit * _LIMIT_FACTORS.get(path, 1)
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > limit:
            await _drop_body(receive)
            raise RequestTooLarge(limit)
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                await _drop_body(receive)
                # Imported here: the routes that read a body have loaded FastAPI, which passes on only its own exceptions.
                from fastapi import HTTPException

                raise HTTPException(413, str(RequestTooLarge(limit)))
            return message

        return limited


def _is_small(path: str) -> bool:
    """Return whether only a small body is accepted: sign-ins and answers by link, so that they need no place among large anonymous
    requests.
    """
    return path == "/api/login" or auth.is_answer_link("POST", path)


def _hash_idempotency_key(headers: Iterable[tuple[bytes, bytes]], actor: str) -> list[tuple[bytes, bytes]]:
    """Return the headers with the idempotency key hashed together with the actor, so that it never equals another caller's or the
    daemon's.
    """

    def scoped(name: bytes, value: bytes) -> bytes:
        if name != b"idempotency-key" or not 0 < len(value) <= MAX_KEY_LENGTH:
            return value
        return hashlib.sha256(actor.encode() + b"\n" + value).hexdigest()[:40].encode()

    return [(name, scoped(name, value)) for name, value in headers]


def _forbid_caching(message: Message) -> Message:
    """Forbid caching of an answer that does not set Cache-Control: it was for this caller only."""
    if message["type"] == "http.response.start":
        headers = message.setdefault("headers", [])
        if not any(name == b"cache-control" for name, _ in headers):
            message["headers"] = [*headers, (b"cache-control", b"no-store")]
    return message


async def _drop_body(receive: Receive) -> None:
    """Receive and drop the rest of a body: a client that is cut off while sending may not read the answer."""
    dropped, more = 0, True
    while more and dropped < _MAX_DRAINED_BYTES:
        message = await receive()
        dropped += len(message.get("body", b""))
        more = message.get("more_body", False)


def _route_of(scope: Scope) -> tuple[str, str]:
    """Return the method and route of a request for metrics: a bounded number of values, whatever the path is."""
    path, method = scope["path"], scope["method"]
    if (matched := scope.get("route")) is not None:
        route = matched.path
    elif path.startswith(_WEBHOOKS):
        route = f"{_WEBHOOKS}{{name}}"
    elif auth.is_git(path):
        route = "/git"
    elif path in _METRIC_PATHS_OF_GATE:
        route = path
    else:
        route = "/" if auth.is_dashboard(method, path) else UNMATCHED_ROUTE
    return method if method in _METHODS else UNMATCHED_ROUTE, route


def _project_of_query(query: bytes) -> str | None:
    """Return the project that a simple query names: "" for that of the folder, "*" for all, or None if the route must parse it."""
    if not query:
        return ""
    if query == b"all=1":
        return "*"
    name, _, value = query.partition(b"=")
    is_plain = value.replace(b"-", b"").replace(b"_", b"").replace(b".", b"").isalnum()
    return value.decode() if name == b"project" and is_plain and value.isascii() else None
