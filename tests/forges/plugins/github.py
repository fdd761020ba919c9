"""Our GitHub plugins, signed in to the test server."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.forges.github.issues import GitHubIssues
from agent_orchestrator.plugins.forges.github.pull_requests import GitHub
from agent_orchestrator.protocols.forge import MergeOptions, PullRequestState
from agent_orchestrator.testing.github import GitHubServer


def scm(
    forge: GitHubServer,
    repo: str = "acme/app",
    by: str = "dev",
    clock: Callable[[], float] = time.time,
    **config: Any,
) -> GitHub:
    config.setdefault("token", forge.token(by))
    return GitHub({"repo": repo, "apiUrl": forge.url, **config}, LocalHost(), clock)


def tracker(forge: GitHubServer, repo: str = "acme/app", by: str = "dev", **config: Any) -> GitHubIssues:
    config.setdefault("token", forge.token(by))
    return GitHubIssues({"repo": repo, "apiUrl": forge.url, **config}, LocalHost())


def merge_request(pull: PullRequestState, **changes: Any) -> MergeOptions:
    fields: dict[str, Any] = {
        "head": pull.head,
        "strategy": "squash",
        "title": "Merge it",
        "body": "Because",
        **changes,
    }
    return MergeOptions(**fields)


async def settled_counts(forge: GitHubServer, since: int = 0) -> Counter[str]:
    """Return the counts of requests since the given one, once the server's ledger no longer grows."""
    request_count = -1
    while request_count != (request_count := len(forge.ledger.requests)):
        await asyncio.sleep(0.03)
    return forge.ledger.counts(since)
