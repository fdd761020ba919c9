"""What a GitLab token may do."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from agent_orchestrator.errors import Denied
from agent_orchestrator.plugins.forges.gitlab.host import GitLabHost
from agent_orchestrator.protocols.forge import Access, Author, MissingPermission


async def read_token_access(at: GitLabHost, purpose: str) -> tuple[Mapping[str, Any], Access]:
    """Return the user of a token and what the token may do. Raise `Denied` if it is not accepted at all."""
    http = await at.http()
    answer = await http.call("GET", "personal_access_tokens/self", safe=True, allow=(400, 401, 403, 404))
    token = answer.data if answer.status == 200 and isinstance(answer.data, Mapping) else {}
    scopes = token.get("scopes")
    summary, lacks = "scopes not told (it is no access token), so tried: reading the project", []
    if isinstance(scopes, list):
        summary = f"scopes {', '.join(map(str, scopes))}" if scopes else "no scopes"
        if "api" not in scopes:
            lacks.append(
                MissingPermission(
                    f"{http.host_text.token} lacks the scope api",
                    purpose,
                    "make a token with the scope api",
                    vital=True,
                )
            )
    try:
        user = (await http.get("user")).data
    except Denied:
        if not lacks:
            raise
        user = {}
    who = Author(str(user.get("username") or "somebody"))
    return user, Access(who, summary, tuple(lacks), _expiry(token.get("expires_at")))


def _expiry(day: Any) -> float | None:
    """Return when the token expires, which is at the beginning of a day, or None."""
    try:
        return datetime.fromisoformat(str(day)).replace(tzinfo=UTC).timestamp() if day else None
    except ValueError:
        return None
