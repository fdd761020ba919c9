"""The forge's HTTP: connections, sign-in, rate limits, conditional requests, redirects, faults; for REST, GraphQL, Git and downloads."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
import urllib.parse
import uuid
from datetime import datetime
from email.utils import format_datetime, parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.forge.http import ConnectionCut, ForgeAnswer, ForgeRequestHandler, encode
from agent_orchestrator.testing.forge.http import ForgeListener as WireListener
from agent_orchestrator.testing.forge.ledger import LoggedRequest, OrderedFault
from agent_orchestrator.testing.github import pulls, rest, rest_ci, rest_issues, rest_pulls, rules  # noqa: F401 - the routes register themselves
from agent_orchestrator.testing.github.calls import GitHubCall, GitHubPage, find_route, paginate
from agent_orchestrator.testing.github.shapes_ci import CiShapes
from agent_orchestrator.testing.github.state import GitHubCheckRun, GitHubRateLimit, GitHubToken, WorkflowRun
from agent_orchestrator.testing.github.world import GitHubRefused

if TYPE_CHECKING:
    from agent_orchestrator.testing.github.server import GitHubServer

_GIT = re.compile(r"/([^/]+)/([^/]+?)(?:\.git)?/(info/refs|git-upload-pack|git-receive-pack)")
_REPO = re.compile(r"/repos/([^/]+)/([^/]+)(/.*)?")
_DOCS = "https://docs.github.com/rest"


class GitHubListener(WireListener):
    def __init__(self, address: tuple[str, int], forge: GitHubServer) -> None:
        self.forge = forge
        super().__init__(address, GitHubHandler, forge.world.clock)


_PERMITTED = re.compile(r"/repos/[^/]+/[^/]+/(issues|pulls|actions)(?:/.*)?")
"""Paths that need a fine-grained permission."""


class GitHubHandler(ForgeRequestHandler):
    server_version = "GitHub.com"
    server: GitHubListener

    def serve(self) -> None:
        forge = self.server.forge
        self.body = self._read()
        url = urllib.parse.urlsplit(self.path)
        self.query = url.query
        heads = {name.lower(): value for name, value in self.headers.items()}
        self.heads = heads
        origin = f"{'https' if self.server.secure else 'http'}://{heads.get('host', '127.0.0.1')}"
        token, signed = self._token(heads.get("authorization", ""))
        path, api = url.path, origin
        if path.startswith("/api/v3/") or path == "/api/v3":
            path, api = path.removeprefix("/api/v3") or "/", f"{origin}/api/v3"
        login = token.user.login if token else ""
        kind = "graphql" if path in ("/graphql", "/api/graphql") else "git" if _GIT.fullmatch(path) else "rest"
        kind = "download" if path.startswith("/_logs/") else kind
        fault = forge.ledger.use_fault(self.command, path, login)
        try:
            if fault and fault.failure == "slow":
                time.sleep(fault.seconds)
                fault = None
            if fault and fault.failure == "drop":
                self._log_request(kind, path, login, 0, 0)
            fault_answer = self._fault_answer(fault, token) if fault else None
            if fault_answer is not None:
                answer, points = fault_answer, 0
            elif kind == "git":
                answer, points = self._serve_git(path, token, signed), 0
            elif kind == "download":
                answer, points = self._download(path), 0
            else:
                show = CiShapes(origin, api, token.user if token else None)
                answer, points = self._serve_api(kind, path, token, signed, show, fault)
            self._log_request(kind, path, login, answer.status, points)
            self._send(answer, fault, token, kind)
        except ConnectionCut:
            self.close_connection = True
        except OSError:
            raise
        except Exception as error:
            forge.world.errors.append(error)
            self._send(ForgeAnswer(500, {"message": f"the test server broke: {error!r}"}), None, token, kind)

    def _log_request(self, kind: str, path: str, login: str, status: int, points: int) -> None:
        """Log the request before the answer is sent, so that a client with the answer finds it in the log."""
        forge = self.server.forge
        conditional = "if-none-match" in self.heads or "if-modified-since" in self.heads
        forge.ledger.requests.append(LoggedRequest(
            forge.world.clock(), kind, self.command, path, self.query, status, login, conditional, points,
            self.heads.get("user-agent", ""),
        ))  # fmt: skip

    def _token(self, header: str) -> tuple[GitHubToken | None, bool]:
        """Return the token if it is valid, and whether the request has one."""
        kind, _, value = header.partition(" ")
        if kind.lower() == "basic":
            user, _, password = base64.b64decode(value).decode(errors="replace").partition(":")
            value = password if password and password != "x-oauth-basic" else user
        token = self.server.forge.world.tokens.get(value.strip())
        return (token if token and not token.expired else None), bool(value)

    # --- what the API answers

    def _serve_api(
        self, kind: str, path: str, token: GitHubToken | None, signed: bool, show: CiShapes, fault: OrderedFault | None
    ) -> tuple[ForgeAnswer, int]:
        forge = self.server.forge
        if signed and token is None:
            return self._refusal(GitHubRefused(401, "Bad credentials")), 0
        if kind == "graphql" and token is None:
            return self._refusal(GitHubRefused(401, "This endpoint requires you to be authenticated.")), 0
        with forge.world.lock:
            limit = self._limit(token, "graphql" if kind == "graphql" else "core")
            if limit.remaining <= 0 and path != "/rate_limit":
                return self._rate_limit_answer(kind, token), 0
            if kind == "graphql":
                answer, points = forge.graphql.answer(self.body, token, show, fault)
                limit.used += points
                return answer, points
            answer = self._missing_permission(path, token) or self._serve_rest(path, token, show)
            etagged = self._conditional(answer, token)
            points = 0 if etagged.status == 304 or path == "/rate_limit" else 1
            limit.used += points
            return etagged, points

    def _missing_permission(self, path: str, token: GitHubToken | None) -> ForgeAnswer | None:
        """Return the refusal if a fine-grained token lacks the permission for this path, or None."""
        match = _PERMITTED.fullmatch(path)
        if match is None or token is None or token.permissions is None or match[1] in token.permissions:
            return None
        answer = self._refusal(GitHubRefused(403, "Resource not accessible by personal access token"))
        answer.headers["X-Accepted-GitHub-Permissions"] = f"{match[1]}=read"
        return answer

    def _limit(self, token: GitHubToken | None, name: str) -> GitHubRateLimit:
        forge = self.server.forge
        limits = token.limits if token else forge.anonymous
        limit = limits.setdefault(name, GitHubRateLimit(5000 if token else 60))
        now = forge.world.clock()
        if now >= limit.reset and not limit.frozen:
            limit.used, limit.reset = 0, now + 3600
        return limit

    def _rate_limit_answer(self, kind: str, token: GitHubToken | None) -> ForgeAnswer:
        who = f"user ID {token.user.id}" if token else "127.0.0.1"
        message = f"API rate limit exceeded for {who}."
        if kind == "graphql":
            return ForgeAnswer(200, {"errors": [{"type": "RATE_LIMITED", "message": message}]})
        return self._refusal(GitHubRefused(403, message))

    def _serve_rest(self, path: str, token: GitHubToken | None, show: CiShapes) -> ForgeAnswer:
        world = self.server.forge.world
        try:
            if by_id := re.fullmatch(r"/repositories/(\d+)(/.*)?", path):
                repository = next((repo for repo in world.repos.values() if repo.id == int(by_id[1])), None)
                if repository is None:
                    raise GitHubRefused(404, "Not Found")
                path = f"/repos/{repository.full_name}{by_id[2] or ''}"
            if (match := _REPO.fullmatch(path)) and (
                renamed := world.renamed_repos.get(f"{match[1]}/{match[2]}".lower())
            ):
                target = f"{show.api}/repositories/{renamed.id}{match[3] or ''}" + (
                    f"?{self.query}" if self.query else ""
                )
                status = 301 if self.command in ("GET", "HEAD") else 307
                return ForgeAnswer(
                    status,
                    {"message": "Moved Permanently", "url": target, "documentation_url": _DOCS},
                    {"Location": target},
                )
            method = "GET" if self.command == "HEAD" else self.command
            route = find_route(method, path)
            if route is None:
                raise GitHubRefused(404, "Not Found")
            query = dict(urllib.parse.parse_qsl(self.query, keep_blank_values=True))
            call = GitHubCall(world, method, path, query, self.heads, self._json(), token, show, route[1])
            answer = route[0](call)
            return paginate(call, answer, f"{show.api}{path}") if isinstance(answer, GitHubPage) else answer
        except GitHubRefused as refused:
            return self._refusal(refused)

    def _json(self) -> Any:
        if not self.body:
            return {}
        try:
            return json.loads(self.body)
        except ValueError:
            raise GitHubRefused(400, "Problems parsing JSON") from None

    def _refusal(self, refused: GitHubRefused) -> ForgeAnswer:
        body = {"message": refused.message, "documentation_url": _DOCS, "status": str(refused.status)}
        return ForgeAnswer(refused.status, body | ({"errors": refused.errors} if refused.errors else {}))

    def _conditional(self, answer: ForgeAnswer, token: GitHubToken | None) -> ForgeAnswer:
        """Return the answer with its ETag, or a 304 if the client already has it."""
        if self.command not in ("GET", "HEAD") or answer.status != 200 or answer.stream is not None:
            return answer
        data = encode(answer.body) + (token.value.encode() if token else b"") + self.heads.get("accept", "").encode()
        answer.headers["ETag"] = tag = (
            f'W/"{hashlib.sha256(data + answer.headers.get("Link", "").encode()).hexdigest()}"'
        )
        answer.headers["Cache-Control"] = "private, max-age=60, s-maxage=60"
        answer.headers["Vary"] = "Accept, Authorization, Cookie, X-GitHub-OTP"
        changed = datetime.fromisoformat(answer.last_modified) if answer.last_modified else None
        if changed:
            answer.headers["Last-Modified"] = format_datetime(changed, usegmt=True)
        known_tags = self.heads.get("if-none-match")
        if known_tags is not None:
            is_unchanged = tag.removeprefix("W/") in [
                known_tag.strip().removeprefix("W/") for known_tag in known_tags.split(",")
            ]
        else:
            since = self.heads.get("if-modified-since")
            is_unchanged = bool(since and changed and changed <= parsedate_to_datetime(since))
        if is_unchanged:
            return ForgeAnswer(304, headers=answer.headers)
        return answer

    # --- Git and downloads

    def _serve_git(self, path: str, token: GitHubToken | None, signed: bool) -> ForgeAnswer:
        forge = self.server.forge
        match = _GIT.fullmatch(path)
        assert match is not None
        name = f"{match[1]}/{match[2]}".lower()
        write = match[3] == "git-receive-pack" or "service=git-receive-pack" in self.query
        with forge.world.lock:
            if renamed := forge.world.renamed_repos.get(name):
                query = f"?{self.query}" if self.query else ""
                return ForgeAnswer(301, headers={"Location": f"/{renamed.full_name}.git/{match[3]}{query}"})
            repo, user = forge.world.repos.get(name), token.user if token else None
        sign_in_answer = ForgeAnswer(
            401, {"message": "Authentication required"}, {"WWW-Authenticate": 'Basic realm="GitHub"'}
        )
        if token is None and (signed or write or repo is None or repo.private):
            return sign_in_answer
        if repo is None or not rules.is_visible(repo, user):
            return ForgeAnswer(404, {"message": "Repository not found."})
        if write and not rules.may_push(repo, user):
            return ForgeAnswer(
                403, {"message": f"Permission to {repo.full_name}.git denied to {user.login if user else 'you'}."}
            )
        status, headers, body = bare_repository.run_http_backend(
            forge.world.root, path_info=f"/{repo.path.name}/{match[3]}", method=self.command, query=self.query,
            user=user.login if user else "", body=self.body, headers=self.heads,
        )  # fmt: skip
        if match[3] == "git-receive-pack" and user:
            with forge.world.lock:
                pulls.process_ref_changes(forge.world, repo, user)
        return ForgeAnswer(status, headers=dict(headers), stream=iter([body]))

    def _download(self, path: str) -> ForgeAnswer:
        node = self.server.forge.world.nodes.get(path.removeprefix("/_logs/"))
        if isinstance(node, GitHubCheckRun):
            return ForgeAnswer(stream=rest_ci.log_of(node), headers={"Content-Type": "text/plain; charset=utf-8"})
        if isinstance(node, WorkflowRun):
            return ForgeAnswer(stream=rest_ci.zipped_logs(node.suite), headers={"Content-Type": "application/zip"})
        return ForgeAnswer(404, {"message": "Not Found"})

    # --- faults, and sending

    def _fault_answer(self, fault: OrderedFault, token: GitHubToken | None) -> ForgeAnswer | None:
        """Return the answer that a fault puts in place of the real one, or None."""
        retry = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
        if fault.failure == "drop":
            self._disconnect()
            raise ConnectionCut
        if fault.failure == "secondary":
            text = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
            answer = self._refusal(GitHubRefused(403, text))
            answer.headers |= retry
            return answer
        if fault.failure == "rate":
            for name in ("core", "graphql"):
                limit = self._limit(token, name)
                limit.used, limit.reset = limit.limit, fault.reset or self.server.forge.world.clock() + 3600
            return None
        if fault.failure == "html":
            page = b"<!DOCTYPE html><html><body><h1>Unicorn! &middot; GitHub</h1></body></html>"
            return ForgeAnswer(502, stream=iter([page]), headers={"Content-Type": "text/html"})
        if isinstance(fault.failure, int):
            second = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
            words = {
                429: second,
                401: "Bad credentials",
                403: "Resource not accessible by personal access token",
                404: "Not Found",
            }
            answer = self._refusal(GitHubRefused(fault.failure, words.get(fault.failure, "Server Error")))
            answer.headers |= retry
            return answer
        return None

    def _send(self, answer: ForgeAnswer, fault: OrderedFault | None, token: GitHubToken | None, kind: str) -> None:
        headers = {
            "X-GitHub-Request-Id": uuid.uuid4().hex[:20].upper(),
            "X-GitHub-Media-Type": "github.v3; format=json",
        }
        if token and token.permissions is None:
            headers["X-OAuth-Scopes"] = ", ".join(token.scopes)
        if token and token.ends:
            headers["GitHub-Authentication-Token-Expiration"] = token.ends
        if kind in ("rest", "graphql") and answer.status != 401:
            limit = self._limit(token, "graphql" if kind == "graphql" else "core")
            headers |= {
                "X-RateLimit-Limit": str(limit.limit), "X-RateLimit-Remaining": str(limit.remaining),
                "X-RateLimit-Used": str(limit.used), "X-RateLimit-Reset": str(int(limit.reset)),
                "X-RateLimit-Resource": "graphql" if kind == "graphql" else "core",
            }  # fmt: skip
        headers |= answer.headers
        if answer.stream is not None and kind == "download":
            self._send_stream(answer, headers, fault)
            return
        self._send_whole(answer, headers, cut=fault is not None and fault.failure == "cut")
