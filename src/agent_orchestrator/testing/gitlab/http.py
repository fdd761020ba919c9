"""The forge's HTTP: sign-in, rate limits, conditional requests, moved projects, faults; for REST and Git."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
import urllib.parse
import uuid
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.forge.http import ConnectionCut, ForgeAnswer, ForgeRequestHandler, encode
from agent_orchestrator.testing.forge.http import ForgeListener as WireListener
from agent_orchestrator.testing.forge.ledger import LoggedRequest, OrderedFault
from agent_orchestrator.testing.gitlab import merge_requests, rules
from agent_orchestrator.testing.gitlab.calls import GitLabCall, GitLabPage, find_route, paginate
from agent_orchestrator.testing.gitlab.shapes import GitLabShapes
from agent_orchestrator.testing.gitlab.state import GitLabRefused, GitLabToken

if TYPE_CHECKING:
    from agent_orchestrator.testing.gitlab.server import GitLabServer

_API = "/api/v4"
_GIT = re.compile(r"/(.+?)(?:\.git)?/(info/refs|git-upload-pack|git-receive-pack)")
_PROJECT = re.compile(r"/projects/([^/]+)(/.*)?")


class GitLabListener(WireListener):
    def __init__(self, address: tuple[str, int], forge: GitLabServer) -> None:
        self.forge = forge
        super().__init__(address, GitLabHandler, forge.world.clock)


class GitLabHandler(ForgeRequestHandler):
    server_version = "nginx"
    server: GitLabListener

    def serve(self) -> None:
        forge = self.server.forge
        self.body = self._read()
        url = urllib.parse.urlsplit(self.path)
        self.query = url.query
        self.heads = {name.lower(): value for name, value in self.headers.items()}
        token, signed = self._token()
        login = token.user.login if token else ""
        path = url.path
        kind = "rest" if path.startswith(f"{_API}/") else "git"
        kind = "download" if path.endswith("/trace") else kind
        path = path.removeprefix(_API)
        fault = forge.ledger.use_fault(self.command, path, login)
        try:
            if fault and fault.failure == "slow":
                time.sleep(fault.seconds)
                fault = None
            fault_answer = self._fault_answer(fault, token, kind, path, login) if fault else None
            answer, points = fault_answer or ForgeAnswer(), 0
            if fault_answer is None:
                answer, points = (
                    (self._serve_git(path, token, signed), 0) if kind == "git" else self._serve_api(path, token, signed)
                )
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
        forge.ledger.requests.append(LoggedRequest(
            forge.world.clock(), kind, self.command, path, self.query, status, login, "if-none-match" in self.heads, points,
            self.heads.get("user-agent", ""),
        ))  # fmt: skip

    def _token(self) -> tuple[GitLabToken | None, bool]:
        """Return the request's token if it is known, and whether the request has one."""
        kind, _, value = self.heads.get("authorization", "").partition(" ")
        if kind.lower() == "basic":
            value = base64.b64decode(value).decode(errors="replace").partition(":")[2]
        value = (self.heads.get("private-token") or value).strip()
        return self.server.forge.world.tokens.get(value), bool(value)

    # --- what the API answers

    def _serve_api(self, path: str, token: GitLabToken | None, signed: bool) -> tuple[ForgeAnswer, int]:
        if signed and token is None:
            return ForgeAnswer(401, {"message": "401 Unauthorized"}), 0
        if token is not None and token.expired:
            words = "Token is expired. You can either do re-authorization or token refresh."
            return ForgeAnswer(401, {"error": "invalid_token", "error_description": words}), 0
        with self.server.forge.world.lock:
            if self._limit(token)["remaining"] <= 0:
                return self._rate_limit_answer(token), 0
            if token:
                token.user.used += 1
            return self._conditional(self._serve_rest(path, token)), 1

    def _limit(self, token: GitLabToken | None) -> dict[str, float]:
        now = self.server.forge.world.clock()
        if token is None:
            return {"limit": 500, "remaining": 500, "used": 0, "reset": now + 60}
        user = token.user
        if now >= user.reset and not user.frozen:
            user.used, user.reset = 0, now + 60
        remaining = max(0, user.limit - user.used)
        return {"limit": user.limit, "remaining": remaining, "used": user.used, "reset": user.reset}

    def _rate_limit_answer(self, token: GitLabToken | None) -> ForgeAnswer:
        wait = max(1, int(self._limit(token)["reset"] - self.server.forge.world.clock()))
        headers = {"Retry-After": str(wait), "Content-Type": "text/plain"}
        return ForgeAnswer(429, stream=iter([b"Retry later\n"]), headers=headers)

    def _serve_rest(self, path: str, token: GitLabToken | None) -> ForgeAnswer:
        world = self.server.forge.world
        method = "GET" if self.command == "HEAD" else self.command
        try:
            if token is not None:
                self._require_scope(method, path, token)
            if moved := self._redirect_renamed(path, method):
                return moved
            route = find_route(method, path)
            if route is None:
                raise GitLabRefused(404, None, error="404 Not Found")
            query = dict(urllib.parse.parse_qsl(self.query, keep_blank_values=True))
            call = GitLabCall(
                world, method, query, self._json(), token, GitLabShapes(world, token.user if token else None), route[1]
            )
            answer = route[0](call)
            return paginate(call, answer, f"{world.url}{_API}{path}") if isinstance(answer, GitLabPage) else answer
        except GitLabRefused as refused:
            return ForgeAnswer(refused.status, refused.body)

    def _require_scope(self, method: str, path: str, token: GitLabToken) -> None:
        sufficient_scopes = (
            {"api"} | ({"read_api"} if method == "GET" else set()) | ({"read_user"} if path == "/user" else set())
        )
        if path != "/personal_access_tokens/self" and not sufficient_scopes & set(token.scopes):
            message = "The request requires higher privileges than provided by the access token."
            raise GitLabRefused(403, None, error="insufficient_scope", error_description=message, scope="api")

    def _redirect_renamed(self, path: str, method: str) -> ForgeAnswer | None:
        """Return a redirect from a renamed project's old name, for GET only, or None if it was not renamed."""
        world, match = self.server.forge.world, _PROJECT.fullmatch(path)
        old = world.renamed_projects.get(urllib.parse.unquote(match[1]).lower()) if match else None
        if match is None or old is None:
            return None
        if method != "GET":
            raise GitLabRefused(405, "Non GET methods are not allowed for moved projects")
        target = f"{world.url}{_API}/projects/{old.id}{match[2] or ''}" + (f"?{self.query}" if self.query else "")
        return ForgeAnswer(
            301, {"message": "This resource has been moved permanently to " + target}, {"Location": target}
        )

    def _json(self) -> Any:
        if not self.body:
            return {}
        if "form-urlencoded" in self.heads.get("content-type", ""):
            return dict(urllib.parse.parse_qsl(self.body.decode()))
        try:
            return json.loads(self.body)
        except ValueError:
            raise GitLabRefused(400, None, error="The request body is not valid JSON") from None

    def _conditional(self, answer: ForgeAnswer) -> ForgeAnswer:
        """Return the answer with its ETag, or a 304 if the client already has it."""
        if self.command != "GET" or answer.status != 200 or answer.stream is not None:
            return answer
        tag = f'W/"{hashlib.sha256(encode(answer.body)).hexdigest()[:32]}"'
        answer.headers |= {"ETag": tag, "Cache-Control": "max-age=0, private, must-revalidate", "Vary": "Origin"}
        return ForgeAnswer(304, headers=answer.headers) if self.heads.get("if-none-match") == tag else answer

    # --- Git

    def _serve_git(self, path: str, token: GitLabToken | None, signed: bool) -> ForgeAnswer:
        forge, match = self.server.forge, _GIT.fullmatch(path)
        if match is None:
            return ForgeAnswer(404, {"message": "404 Not Found"})
        write = match[2] == "git-receive-pack" or "service=git-receive-pack" in self.query
        with forge.world.lock:
            if old := forge.world.renamed_projects.get(match[1].lower()):
                query = f"?{self.query}" if self.query else ""
                return ForgeAnswer(301, headers={"Location": f"/{old.full_name}.git/{match[2]}{query}"})
            project, user = forge.world.projects.get(match[1].lower()), token.user if token else None
        if (token is None or token.expired) and (signed or write or project is None or project.private):
            text = "HTTP Basic: Access denied. The provided password or token is incorrect or your account has 2FA enabled."
            return ForgeAnswer(401, {"message": text}, {"WWW-Authenticate": 'Basic realm="GitLab"'})
        if project is None or not rules.is_visible(project, user):
            return ForgeAnswer(404, {"message": "The project you were looking for could not be found."})
        scopes = set(token.scopes) if token else set()
        if write and (rules.access_level(project, user) < rules.DEVELOPER or not scopes & {"api", "write_repository"}):
            return ForgeAnswer(403, {"message": "You are not allowed to push code to this project."})
        status, headers, body = bare_repository.run_http_backend(
            forge.world.root, path_info=f"/{project.path.name}/{match[2]}", method=self.command, query=self.query,
            user=user.login if user else "", body=self.body, headers=self.heads,
        )  # fmt: skip
        if match[2] == "git-receive-pack" and user:
            with forge.world.lock:
                merge_requests.process_ref_changes(forge.world, project, user)
        return ForgeAnswer(status, headers=dict(headers), stream=iter([body]))

    # --- faults, and sending

    def _fault_answer(
        self, fault: OrderedFault, token: GitLabToken | None, kind: str, path: str, login: str
    ) -> ForgeAnswer | None:
        """Return the answer that a fault puts in place of the real one, or None."""
        if fault.failure == "drop":
            self._log_request(kind, path, login, 0, 0)
            self._disconnect()
            raise ConnectionCut
        if fault.failure == "rate" and token:
            token.user.used, token.user.reset = token.user.limit, fault.reset or self.server.forge.world.clock() + 60
            return self._rate_limit_answer(token)
        if fault.failure == "html":
            page = b"<!DOCTYPE html><html><body><h1>502</h1>Whoops, GitLab is taking too much time to respond.</body></html>"
            return ForgeAnswer(502, stream=iter([page]), headers={"Content-Type": "text/html"})
        if isinstance(fault.failure, int):
            words = {401: "401 Unauthorized", 403: "403 Forbidden", 404: "404 Not Found", 429: "Retry later"}
            retry = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
            return ForgeAnswer(fault.failure, {"message": words.get(fault.failure, "500 Internal Server Error")}, retry)
        return None

    def _send(self, answer: ForgeAnswer, fault: OrderedFault | None, token: GitLabToken | None, kind: str) -> None:
        headers = {"X-Request-Id": uuid.uuid4().hex[:26].upper(), "X-Gitlab-Meta": '{"version":"1"}'}
        if kind != "git" and answer.status != 401:
            limit = self._limit(token)
            resets = format_datetime(datetime.fromtimestamp(limit["reset"], UTC), usegmt=True)
            headers |= {
                "RateLimit-Limit": str(int(limit["limit"])), "RateLimit-Observed": str(int(limit["used"])),
                "RateLimit-Remaining": str(int(limit["remaining"])), "RateLimit-Reset": str(int(limit["reset"])),
                "RateLimit-ResetTime": resets, "RateLimit-Name": "throttle_authenticated_api",
            }  # fmt: skip
        headers |= answer.headers
        if answer.stream is not None and kind == "download" and answer.status == 200:
            self._send_stream(answer, headers, fault)
            return
        self._send_whole(answer, headers, cut=fault is not None and fault.failure == "cut")
