"""Requests, paged answers and the table of routes, on which the REST modules are built."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agent_orchestrator.testing.forge.http import ForgeAnswer
from agent_orchestrator.testing.gitlab import rules
from agent_orchestrator.testing.gitlab.shapes import GitLabShapes, Json
from agent_orchestrator.testing.gitlab.state import (
    GitLabIssue,
    GitLabMergeRequest,
    GitLabProject,
    GitLabRefused,
    GitLabToken,
    GitLabUser,
)
from agent_orchestrator.testing.gitlab.world import GitLabWorld


@dataclass
class GitLabPage:
    """A list to be cut into pages."""

    items: Sequence[Any]
    shape: Callable[[Any], Json]


@dataclass
class GitLabCall:
    world: GitLabWorld
    method: str
    query: dict[str, str]
    body: Any
    token: GitLabToken | None
    shapes: GitLabShapes
    args: dict[str, str] = field(default_factory=dict)

    @property
    def viewer(self) -> GitLabUser | None:
        return self.token.user if self.token else None

    def require_user(self) -> GitLabUser:
        if self.token is None:
            raise GitLabRefused(401, "401 Unauthorized")
        return self.token.user

    def parameter(self, name: str, default: Any = None) -> Any:
        """Return a parameter of the body or of the query."""
        if isinstance(self.body, dict) and name in self.body:
            return self.body[name]
        return self.query.get(name, default)

    def flag(self, name: str) -> bool:
        return str(self.parameter(name, "")).lower() in ("true", "1")

    def required_parameter(self, name: str) -> Any:
        value = self.parameter(name)
        if value in (None, ""):
            raise GitLabRefused(400, None, error=f"{name} is missing")
        return value

    def names(self, name: str) -> list[str] | None:
        """Return a list parameter, which may be separated by commas, or None if it is absent."""
        value = self.parameter(name)
        if value is None:
            return None
        return [
            item.strip() for item in (value if isinstance(value, list) else str(value).split(",")) if str(item).strip()
        ]

    @property
    def project(self) -> GitLabProject:
        project = self.find_project(self.args["project"])
        if self.method != "GET":
            self.require_user()
        return project

    def find_project(self, name: str) -> GitLabProject:
        projects = self.world.projects
        if name.isdigit():
            project = next((candidate for candidate in projects.values() if candidate.id == int(name)), None)
        else:
            project = projects.get(name.lower())
        if project is None or not rules.is_visible(project, self.viewer):
            raise GitLabRefused(404, "404 Project Not Found")
        return project

    def require_level(self, level: int) -> None:
        if rules.access_level(self.project, self.require_user()) < level:
            raise GitLabRefused(403, "403 Forbidden")

    @property
    def issue(self) -> GitLabIssue:
        issue = self.project.issues.get(int(self.args["iid"]))
        if issue is None:
            raise GitLabRefused(404, "404 Issue Not Found")
        return issue

    @property
    def merge_request(self) -> GitLabMergeRequest:
        merge_request = self.project.merge_requests.get(int(self.args["iid"]))
        if merge_request is None:
            raise GitLabRefused(404, "404 Merge request Not Found")
        return merge_request

    @property
    def noteable(self) -> GitLabIssue:
        return self.merge_request if self.args["kind"] == "merge_requests" else self.issue

    def people(self, name: str) -> list[GitLabUser] | None:
        """Return the users with these ids (0 is ignored), or None if the parameter is absent."""
        value = self.parameter(name)
        if value is None:
            return None
        user_ids = [
            int(item) for item in (value if isinstance(value, list) else [value]) if str(item).isdigit() and int(item)
        ]
        return [user for number in user_ids for user in self.world.users.values() if user.id == number]


Handler = Callable[[GitLabCall], ForgeAnswer | GitLabPage]
Route = TypeVar("Route", bound=Handler)
_ROUTES: list[tuple[str, re.Pattern[str], Handler]] = []


def route(method: str, path: str) -> Callable[[Route], Route]:
    """Register a handler. `PROJECT` matches a project id or encoded path, `{name}` one part of the path; `iid` and `…_id` are digits."""

    def part(match: re.Match[str]) -> str:
        name = match[1]
        if name == "kind":
            return "(?P<kind>merge_requests|issues)"
        return rf"(?P<{name}>\d+)" if name == "iid" or name.endswith("_id") else f"(?P<{name}>[^/]+)"

    pattern = re.compile(re.sub(r"\{(\w+)\}", part, path.replace("PROJECT", "/projects/{project}")))

    def keep(handler: Route) -> Route:
        _ROUTES.append((method, pattern, handler))
        return handler

    return keep


def find_route(method: str, path: str) -> tuple[Handler, dict[str, str]] | None:
    for route_method, pattern, handler in _ROUTES:
        if route_method == method and (match := pattern.fullmatch(path)):
            return handler, {name: urllib.parse.unquote(value) for name, value in match.groupdict().items()}
    return None


def paginate(call: GitLabCall, page: GitLabPage, url: str) -> ForgeAnswer:
    """Return a page of a list with links to the others; by keyset if requested."""
    try:
        size = min(100, max(1, int(call.query.get("per_page", 20))))
        number = max(1, int(call.query.get("page", 1)))
    except ValueError:
        raise GitLabRefused(400, None, error="per_page is invalid") from None
    if call.query.get("pagination") == "keyset":
        return _keyset(call, page, url, size)
    total = len(page.items)
    last = max(1, -(-total // size))
    links = {"first": 1, "last": last}
    if number > 1:
        links["prev"] = number - 1
    if number < last:
        links["next"] = number + 1
    headers = {
        "X-Page": str(number), "X-Per-Page": str(size), "X-Next-Page": str(links.get("next", "")),
        "X-Prev-Page": str(links.get("prev", "")), "X-Total": str(total), "X-Total-Pages": str(last),
        "Link": ", ".join(_link(url, {**call.query, "page": str(at), "per_page": str(size)}, name) for name, at in links.items()),
    }  # fmt: skip
    part = page.items[(number - 1) * size : number * size]
    return ForgeAnswer(body=[page.shape(item) for item in part], headers=headers)


def _keyset(call: GitLabCall, page: GitLabPage, url: str, size: int) -> ForgeAnswer:
    items = sorted(page.items, key=lambda item: item.id, reverse=call.query.get("sort", "desc") == "desc")
    cursor = call.query.get("cursor", "")
    start = next((at + 1 for at, item in enumerate(items) if str(item.id) == cursor), 0)
    part = items[start : start + size]
    has_more = start + size < len(items)
    headers = {"Link": _link(url, {**call.query, "cursor": str(part[-1].id)}, "next")} if has_more else {}
    return ForgeAnswer(body=[page.shape(item) for item in part], headers=headers)


def _link(url: str, query: dict[str, str], name: str) -> str:
    return f'<{url}?{urllib.parse.urlencode(query)}>; rel="{name}"'
