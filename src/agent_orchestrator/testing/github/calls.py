"""Requests, paged answers and the table of routes, on which the REST modules are built."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agent_orchestrator.testing.forge.http import ForgeAnswer
from agent_orchestrator.testing.github import rules
from agent_orchestrator.testing.github.shapes import Json
from agent_orchestrator.testing.github.shapes_ci import CiShapes
from agent_orchestrator.testing.github.state import GitHubIssue, GitHubPullRequest, GitHubToken, GitHubUser, Repo
from agent_orchestrator.testing.github.world import GitHubRefused, GitHubWorld


@dataclass
class GitHubPage:
    """A list to be cut into pages; with `wrap` it is put under that key, beside its count."""

    items: list[Any]
    shape: Callable[[Any], Json]
    wrap: str | None = None


@dataclass
class GitHubCall:
    world: GitHubWorld
    method: str
    path: str
    """The path below the API's root."""
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    token: GitHubToken | None
    shapes: CiShapes
    args: dict[str, str] = field(default_factory=dict)

    @property
    def viewer(self) -> GitHubUser | None:
        return self.token.user if self.token else None

    def require_user(self) -> GitHubUser:
        if self.token is None:
            raise GitHubRefused(401, "Requires authentication")
        return self.token.user

    def parameter(self, name: str, default: Any = None) -> Any:
        return self.body.get(name, default) if isinstance(self.body, dict) else default

    def required_parameter(self, name: str) -> Any:
        value = self.parameter(name)
        if value is None:
            raise GitHubRefused(422, f'Invalid request.\n\n"{name}" wasn\'t supplied.')
        return value

    @property
    def repo(self) -> Repo:
        repo = self.world.repos.get(f"{self.args['owner']}/{self.args['repo']}".lower())
        if repo is None or not rules.is_visible(repo, self.viewer):
            raise GitHubRefused(404, "Not Found")
        if repo.private and self.token and "repo" not in self.token.scopes:
            raise GitHubRefused(404, "Not Found")
        if self.method != "GET" and self.token and not {"repo", "public_repo"} & set(self.token.scopes):
            raise GitHubRefused(404, "Not Found")
        if self.method != "GET":
            self.require_user()
        return repo

    @property
    def issue(self) -> GitHubIssue:
        issue = self.repo.issues.get(int(self.args["number"]))
        if issue is None:
            raise GitHubRefused(404, "Not Found")
        return issue

    @property
    def pull(self) -> GitHubPullRequest:
        pull = self.issue
        if not isinstance(pull, GitHubPullRequest):
            raise GitHubRefused(404, "Not Found")
        return pull


Handler = Callable[[GitHubCall], ForgeAnswer | GitHubPage]
Route = TypeVar("Route", bound=Handler)
_ROUTES: list[tuple[str, re.Pattern[str], Handler]] = []


def route(method: str, path: str) -> Callable[[Route], Route]:
    """Register a handler. `{name}` matches one part of the path, `{name*}` any number; `number` and `…_id` only digits."""

    def part(match: re.Match[str]) -> str:
        name = match[1]
        if name.endswith("*"):
            return f"(?P<{name[:-1]}>.+)"
        return rf"(?P<{name}>\d+)" if name == "number" or name.endswith("_id") else f"(?P<{name}>[^/]+)"

    pattern = re.compile(re.sub(r"\{([\w*]+)\}", part, path.replace("REPO", "/repos/{owner}/{repo}")))

    def keep(handler: Route) -> Route:
        _ROUTES.append((method, pattern, handler))
        return handler

    return keep


def find_route(method: str, path: str) -> tuple[Handler, dict[str, str]] | None:
    for route_method, pattern, handler in _ROUTES:
        if route_method == method and (match := pattern.fullmatch(path)):
            return handler, {name: urllib.parse.unquote(value) for name, value in match.groupdict().items()}
    return None


def paginate(call: GitHubCall, page: GitHubPage, url: str) -> ForgeAnswer:
    """Return a page of a list, with links to the others."""
    try:
        size = min(100, max(1, int(call.query.get("per_page", 30))))
        number = max(1, int(call.query.get("page", 1)))
    except ValueError:
        raise GitHubRefused(422, "Validation Failed") from None
    last = max(1, -(-len(page.items) // size))
    part = [page.shape(item) for item in page.items[(number - 1) * size : number * size]]
    links: dict[str, int] = {}
    if number > 1:
        links |= {"prev": number - 1, "first": 1}
    if number < last:
        links |= {"next": number + 1, "last": last}
    headers = {}
    if links:
        text = ", ".join(
            f'<{url}?{urllib.parse.urlencode({**call.query, "page": str(at)})}>; rel="{name}"'
            for name, at in links.items()
        )
        headers["Link"] = text
    body = part if page.wrap is None else {"total_count": len(page.items), page.wrap: part}
    return ForgeAnswer(body=body, headers=headers)
