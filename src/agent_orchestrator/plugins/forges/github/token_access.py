"""What a GitHub token may do: by its scopes if GitHub lists them, otherwise by reading what is needed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from agent_orchestrator.errors import Denied, NotFound
from agent_orchestrator.plugins.forges.github.host import GitHubHost
from agent_orchestrator.plugins.forges.github.people import parse_author
from agent_orchestrator.plugins.forges.shared.http import ForgeHttpClient
from agent_orchestrator.plugins.forges.shared.response_errors import HostText, scopes_of, with_implied_scopes
from agent_orchestrator.protocols.forge import Access, Author, MissingPermission

PULL_REQUEST_PARTS = {"pulls": "to read and open pull requests", "actions/runs": "to read checks and run them again"}
"""The parts of a repository that pull requests need, each with its purpose."""
ISSUE_PARTS = {"issues": "to read and change issues"}
"""The parts of a repository that issues need, each with its purpose."""


async def read_token_access(at: GitHubHost, repo: str, parts: Mapping[str, str], fork: str = "") -> Access:
    """Return the token's account and which of `parts` the token may not use. Raise `Denied` if it is not accepted at all."""
    http = await at.http()
    headers: Mapping[str, str] = {}
    try:
        answer = await http.get("user")
    except Denied as error:
        if "not accessible" not in error.text:  # an app's token belongs to no user
            raise
        who = Author(await at.login(), "bot")
    else:
        who, headers = parse_author(answer.data, ""), answer.headers
    repository = (await http.get(f"repos/{repo}")).data or {}
    may_push = (repository.get("permissions") or {}).get("push")
    scopes = scopes_of(headers)
    if scopes is None:
        summary, lacks = (
            f"without scopes, so tried: reading {', '.join(parts)}",
            await _unreadable_parts(http, repo, parts),
        )
    else:
        summary = f"scopes {', '.join(scopes)}" if scopes else "no scopes"
        lacks = _missing_scopes(http.host_text, scopes, parts, is_private=bool(repository.get("private", True)))
    if may_push is False and not fork and "pulls" in parts:
        remedy = "ask its owner, or push to a fork of yours: scm.fork: you/name"
        lacks.append(MissingPermission(f"{who.name} may not write to {repo}", "", remedy, vital=True))
    who = Author(who.name, who.kind, "yes" if may_push else "unknown")
    return Access(who, summary, tuple(lacks), _expiry(headers.get("github-authentication-token-expiration", "")))


def _missing_scopes(
    speaker: HostText, scopes: list[str], parts: Mapping[str, str], *, is_private: bool
) -> list[MissingPermission]:
    """Return a lack for each scope that the token needs and does not have."""
    owned, repo_scope = with_implied_scopes(scopes), "repo" if is_private else "public_repo"
    purposes = {repo_scope: " and ".join(parts.values())}
    if "pulls" in parts:
        purposes["workflow"] = "to push changes of .github/workflows"
    return [
        MissingPermission(
            f"{speaker.token} lacks the scope {scope}",
            purpose,
            speaker.add_scope.format(scope=scope),
            vital=scope == repo_scope,
        )
        for scope, purpose in purposes.items()
        if scope not in owned
    ]


async def _unreadable_parts(http: ForgeHttpClient, repo: str, parts: Mapping[str, str]) -> list[MissingPermission]:
    """Return a lack for each part that the token cannot read. Whether it may write is only known when it writes."""
    lacks = []
    for part, purpose in parts.items():
        try:
            await http.get(f"repos/{repo}/{part}?per_page=1", keep=_discard)
        except (Denied, NotFound) as error:
            lacks.append(MissingPermission(error.text, purpose, error.remedy, vital=part != "actions/runs"))
    return lacks


def _discard(_data: Any) -> None:
    """Keep nothing of an answer: the request only tests whether it is allowed."""


def _expiry(text: str) -> float | None:
    """Return when the token expires, from GitHub's header (`2026-12-15 03:09:32 UTC`), or None."""
    try:
        return datetime.fromisoformat(text[:19]).replace(tzinfo=UTC).timestamp() if text else None
    except ValueError:
        return None
