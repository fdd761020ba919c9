"""What a token of GitHub's lets us do: by the scopes that it names, else by trying to read what we need."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from agent_orchestrator.errors import Denied, NotFound
from agent_orchestrator.plugins.forges.github.host import GitHubHost
from agent_orchestrator.plugins.forges.github.people import author
from agent_orchestrator.plugins.forges.shared.http import Http
from agent_orchestrator.plugins.forges.shared.refusals import Speaker, implied, scopes_of
from agent_orchestrator.protocols.forge import Access, Author, Lack

PULLS = {"pulls": "to read and open pull requests", "actions/runs": "to read checks and run them again"}
"""Parts of a repository that pull requests need, and what for."""
ISSUES = {"issues": "to read and change issues"}


async def access(at: GitHubHost, repo: str, parts: Mapping[str, str], fork: str = "") -> Access:
    """Who we are, and what of `parts` the token may not do. Raises `Denied` where it is not accepted at all."""
    http = await at.http()
    headers: Mapping[str, str] = {}
    try:
        answer = await http.get("user")
    except Denied as error:
        if "not accessible" not in error.text:  # an app's token is nobody's
            raise
        who = Author(await at.login(), "bot")
    else:
        who, headers = author(answer.data, ""), answer.headers
    found = (await http.get(f"repos/{repo}")).data or {}
    may = (found.get("permissions") or {}).get("push")
    scopes = scopes_of(headers)
    if scopes is None:
        told, lacks = f"without scopes, so tried: reading {', '.join(parts)}", await _tried(http, repo, parts)
    else:
        told = f"scopes {', '.join(scopes)}" if scopes else "no scopes"
        lacks = _unscoped(http.speaker, scopes, parts, private=bool(found.get("private", True)))
    if may is False and not fork and "pulls" in parts:
        remedy = "ask its owner, or push to a fork of yours: scm.fork: you/name"
        lacks.append(Lack(f"{who.name} may not write to {repo}", "", remedy, vital=True))
    who = Author(who.name, who.kind, "yes" if may else "unknown")
    return Access(who, told, tuple(lacks), _end(headers.get("github-authentication-token-expiration", "")))


def _unscoped(speaker: Speaker, scopes: list[str], parts: Mapping[str, str], *, private: bool) -> list[Lack]:
    owned, base = implied(scopes), "repo" if private else "public_repo"
    purposes = {base: " and ".join(parts.values())}
    if "pulls" in parts:
        purposes["workflow"] = "to push changes of .github/workflows"
    return [
        Lack(
            f"{speaker.token} lacks the scope {scope}", purpose, speaker.widen.format(scope=scope), vital=scope == base
        )
        for scope, purpose in purposes.items()
        if scope not in owned
    ]


async def _tried(http: Http, repo: str, parts: Mapping[str, str]) -> list[Lack]:
    """What cannot be read is lacking. What may be written is only seen when it is."""
    lacks = []
    for part, purpose in parts.items():
        try:
            await http.get(f"repos/{repo}/{part}?per_page=1", keep=_nothing)
        except (Denied, NotFound) as error:
            lacks.append(Lack(error.text, purpose, error.remedy, vital=part != "actions/runs"))
    return lacks


def _nothing(_data: Any) -> None:
    """It was read, and that is all."""


def _end(text: str) -> float | None:
    """When the token ends, where GitHub says so: `2026-12-15 03:09:32 UTC`."""
    try:
        return datetime.fromisoformat(text[:19]).replace(tzinfo=UTC).timestamp() if text else None
    except ValueError:
        return None
