"""GraphQL: the context of a query, nodes that are not records of the state, and pagination."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.github.shapes import Json
from agent_orchestrator.testing.github.shapes_ci import CiShapes
from agent_orchestrator.testing.github.state import GitHubRateLimit, GitHubUser, Repo
from agent_orchestrator.testing.github.world import GitHubRefused, GitHubWorld


@dataclass
class GitHubQueryContext:
    """The viewer and cost of a query."""

    world: GitHubWorld
    show: CiShapes
    viewer: GitHubUser
    points: int
    nodes: int
    limit: GitHubRateLimit
    broken: str = ""


@dataclass(frozen=True)
class CommitNode:
    repo: Repo
    sha: str

    @property
    def data(self) -> bare_repository.BareCommit:
        return bare_repository.commit(self.repo.path, self.sha)


@dataclass(frozen=True)
class RefNode:
    repo: Repo
    name: str
    sha: str


@dataclass(frozen=True)
class Rollup:
    repo: Repo
    sha: str
    state: str


def connection(items: list[Any], args: Json, **more: Any) -> Json:
    """Return a page of a list by `first`/`after` or `last`/`before`; without one only the count."""
    first, last, after, before = (args.get(name) for name in ("first", "last", "after", "before"))
    size = first if first is not None else last
    if size is None:
        words = "You must provide a `first` or `last` value to properly paginate the connection."
        refused = GitHubRefused(422, words, kind="MISSING_PAGINATION_BOUNDARIES")
        return {"nodes": refused, "edges": refused, "pageInfo": refused, "totalCount": len(items), **more}
    if not 0 <= size <= 100:
        raise GitHubRefused(
            422,
            f"Requesting {size} records on the connection exceeds the limit of 100 records.",
            kind="EXCESSIVE_PAGINATION",
        )
    start = _position(after) if after else 0
    end = _position(before) - 1 if before else len(items)
    begin = start if first is not None else max(start, end - size)
    stop = min(end, begin + size) if first is not None else end
    part = items[begin:stop]
    cursors = [_cursor(begin + at + 1) for at in range(len(part))]
    return {
        "nodes": part, "edges": [{"node": node, "cursor": cursor} for node, cursor in zip(part, cursors, strict=True)],
        "totalCount": len(items),
        "pageInfo": {
            "hasNextPage": stop < len(items), "hasPreviousPage": begin > 0, "startCursor": cursors[0] if cursors else None,
            "endCursor": cursors[-1] if cursors else None,
        },
        **more,
    }  # fmt: skip


def _cursor(position: int) -> str:
    return base64.b64encode(f"cursor:v2:{position}".encode()).decode()


def _position(cursor: str) -> int:
    try:
        return int(base64.b64decode(cursor).decode().split(":")[2])
    except (ValueError, IndexError):
        raise GitHubRefused(
            422, f"`{cursor}` does not appear to be a valid cursor.", kind="INVALID_CURSOR_ARGUMENTS"
        ) from None
