"""Turn a forge's refusal into an error of one line with a remedy. Pure.

Look here when an error of a forge is classified wrongly, or has a misleading text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from agent_orchestrator.errors import AoError, Conflict, Denied, NotFound, Temporary, UsageError
from agent_orchestrator.plugins.forges.shared.rate_limits import clock_text

MAX_MESSAGE_LENGTH = 300
"""Characters that are kept of a forge's message."""


@dataclass(frozen=True, slots=True)
class HostText:
    """The host that is talked to, in words for people."""

    name: str
    """The host: `GitHub`, `GitLab at git.example.com` …"""
    token: str
    """The token: `the token from GITHUB_TOKEN` …"""
    sign_in: str
    """How a person gets another token: `gh auth login --hostname H`."""
    add_scope: str = ""
    """How a person adds a scope to the token; `{scope}` stands for the scope."""
    keys: str = "repo and apiUrl"
    """The configuration keys that say where the repository is."""


def rate_limit_kind(status: int, headers: Mapping[str, str], data: Any) -> str:
    """Return `primary` or `secondary` if a rate limit was exceeded, or "" if the answer has another reason."""
    if status not in (403, 429):
        return ""
    message = error_message(data).lower()
    if "secondary rate limit" in message or "abuse detection" in message:
        return "secondary"
    if headers.get("x-ratelimit-remaining") == "0" or headers.get("ratelimit-remaining") == "0":
        return "primary"
    if "retry-after" in headers:
        return "secondary"
    if status == 429 or "rate limit" in message:
        return "primary" if "x-ratelimit-reset" in headers or "ratelimit-reset" in headers else "secondary"
    return ""


def rate_limit_error(speaker: HostText, what: str, until: float) -> Temporary:
    """Return the error for a request that may not be sent before a time."""
    return Temporary(
        f"{speaker.name} takes no more requests before {clock_text(until)} ({what})",
        "nothing is lost: it goes on by itself then; webhooks spare most requests (see ao doctor)",
        until,
    )


def response_error(speaker: HostText, what: str, status: int, headers: Mapping[str, str], data: Any) -> AoError:
    """Return the error for an answer with a status of 400 or more. `what` names the request: `GET /repos/o/n`."""
    message = error_message(data)
    if status == 401:
        return Denied(f"{speaker.token} is not accepted by {speaker.name}", speaker.sign_in)
    if status in (403, 451):
        return _forbidden_error(speaker, what, headers, message)
    if status in (404, 410):
        detail = f" ({message})" if message and message != "Not Found" else ""
        return NotFound(
            f"{speaker.name} has no {unquote(what.partition(' ')[2] or what)}{detail}",
            f"check its name, and {speaker.keys} in the configuration; what {speaker.token} may not see looks the same",
        )
    if status == 409:
        return Conflict(f"{speaker.name} refuses {what}: {message or 'conflict'}")
    if status == 422:
        return UsageError(f"{speaker.name} refuses {what}: {message or 'it is not valid'}")
    if status >= 500:
        return Temporary(f"{speaker.name} failed with {status} at {what}", "try again later; see its status page")
    return AoError(f"{speaker.name} refuses {what} with {status}: {message or 'no reason given'}")


def _forbidden_error(speaker: HostText, what: str, headers: Mapping[str, str], message: str) -> AoError:
    """Return the error for an answer 403 or 451: single sign-on, a missing scope or permission, or another reason."""
    sso = headers.get("x-github-sso", "")
    if "url=" in sso:
        return Denied(
            f"{speaker.token} is not authorized for the organization's single sign-on", sso.partition("url=")[2]
        )
    lacking = missing_scopes(headers)
    if lacking:
        remedy = (
            speaker.add_scope.format(scope=lacking[0])
            if speaker.add_scope
            else f"make a token with the scope {lacking[0]}"
        )
        return Denied(f"{speaker.token} lacks the scope {' or '.join(lacking)} for {what}", remedy)
    needed = headers.get("x-accepted-github-permissions", "")
    if needed and "not accessible" in message.lower():
        return Denied(
            f"{speaker.token} lacks the permission {needed} for {what}",
            "give the token that permission in its settings",
        )
    return Denied(f"{speaker.name} forbids {what}: {message or 'no reason given'}", speaker.sign_in)


def scopes_of(headers: Mapping[str, str]) -> list[str] | None:
    """Return the scopes of a token, or None if it is of a kind that has no scopes."""
    return _split_names(headers["x-oauth-scopes"]) if "x-oauth-scopes" in headers else None


def missing_scopes(headers: Mapping[str, str]) -> list[str]:
    """Return the scopes of which the token needs one and has none; empty if the host does not name them."""
    scopes = scopes_of(headers)
    if scopes is None:
        return []
    accepted = _split_names(headers.get("x-accepted-oauth-scopes", ""))
    owned = with_implied_scopes(scopes)
    return [] if not accepted or owned & set(accepted) else accepted


_IMPLIED_SCOPES = {
    "repo": ("public_repo", "repo:status", "repo_deployment", "repo:invite", "security_events"),
    "admin:org": ("write:org", "read:org"),
    "write:org": ("read:org",),
    "user": ("read:user", "user:email", "user:follow"),
}
"""The scopes of GitHub that each scope contains."""


def with_implied_scopes(scopes: list[str]) -> set[str]:
    """Return these scopes and the scopes that they contain."""
    return {*scopes, *(contained for scope in scopes for contained in _IMPLIED_SCOPES.get(scope, ()))}


def _split_names(text: str) -> list[str]:
    """Split a comma-separated header into names."""
    return [name.strip() for name in text.split(",") if name.strip()]


def error_message(data: Any) -> str:
    """Return an answer's message and the messages of its errors, on one line."""
    if not isinstance(data, Mapping):
        return _one_line(data) if isinstance(data, str) else ""
    parts = [data.get("message") or data.get("error_description") or data.get("error")]
    errors = data.get("errors") or data.get("errorMessages")
    if isinstance(errors, Mapping):
        errors = [f"{key}: {value}" for key, value in errors.items()]
    if isinstance(errors, str):
        parts.append(errors)
    for error in errors[:5] if isinstance(errors, list) else ():
        if isinstance(error, Mapping):
            parts.append(error.get("message") or " ".join(str(error[key]) for key in ("field", "code") if key in error))
        else:
            parts.append(str(error))
    return _one_line(
        "; ".join(dict.fromkeys(part if isinstance(part, str) else json.dumps(part) for part in parts if part))
    )


def _one_line(text: str) -> str:
    """Return a text on one line, cut to `MAX_MESSAGE_LENGTH` characters."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_MESSAGE_LENGTH else line[: MAX_MESSAGE_LENGTH - 1] + "…"
