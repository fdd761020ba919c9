"""What a token of GitLab's lets us do."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from agent_orchestrator.errors import Denied
from agent_orchestrator.plugins.forges.gitlab.host import GitLabHost
from agent_orchestrator.protocols.forge import Access, Author, Lack


async def access(at: GitLabHost, purpose: str) -> tuple[Mapping[str, Any], Access]:
    """The user and what his token may do. Raises `Denied` where it is not accepted at all."""
    http = await at.http()
    own = await http.call("GET", "personal_access_tokens/self", safe=True, allow=(400, 401, 403, 404))
    token = own.data if own.status == 200 and isinstance(own.data, Mapping) else {}
    scopes = token.get("scopes")
    told, lacks = "scopes not told (it is no access token), so tried: reading the project", []
    if isinstance(scopes, list):
        told = f"scopes {', '.join(map(str, scopes))}" if scopes else "no scopes"
        if "api" not in scopes:
            lacks.append(
                Lack(
                    f"{http.speaker.token} lacks the scope api", purpose, "make a token with the scope api", vital=True
                )
            )
    try:
        user = (await http.get("user")).data
    except Denied:
        if not lacks:
            raise
        user = {}
    who = Author(str(user.get("username") or "somebody"))
    return user, Access(who, told, tuple(lacks), _end(token.get("expires_at")))


def _end(day: Any) -> float | None:
    """When the token ends: at the beginning of a day."""
    try:
        return datetime.fromisoformat(str(day)).replace(tzinfo=UTC).timestamp() if day else None
    except ValueError:
        return None
