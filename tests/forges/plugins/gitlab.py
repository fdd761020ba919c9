"""Our GitLab plugins, signed in to the test server."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.forges.gitlab.issues import GitLabIssues
from agent_orchestrator.plugins.forges.gitlab.merge_requests import GitLab
from agent_orchestrator.testing.gitlab import GitLabMergeRequest, GitLabServer


def scm(
    forge: GitLabServer,
    repo: str = "acme/app",
    by: str = "dev",
    clock: Callable[[], float] = time.time,
    **config: Any,
) -> GitLab:
    config.setdefault("token", forge.token(by))
    return GitLab({"repo": repo, "apiUrl": forge.url, **config}, LocalHost(), clock)


def tracker(forge: GitLabServer, repo: str = "acme/app", by: str = "dev", **config: Any) -> GitLabIssues:
    config.setdefault("token", forge.token(by))
    return GitLabIssues({"repo": repo, "apiUrl": forge.url, **config}, LocalHost())


def merge_request_id(pull: GitLabMergeRequest) -> str:
    """Return the id that our plugin gives the merge request."""
    return f"{pull.project.id}!{pull.iid}"
