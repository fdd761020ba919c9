"""What a forge's refusal means, in one line with its remedy. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from agent_orchestrator.errors import AoError, Conflict, Denied, NotFound, Temporary, UsageError
from agent_orchestrator.plugins.forges.shared.request_budget import clock_text
from agent_orchestrator.protocols.forge import Access, Author

LONGEST_MESSAGE = 300


@dataclass(frozen=True, slots=True)
class Speaker:
    """Whom we speak with, in the words for people."""

    name: str
    """`GitHub`, `GitLab at git.example.com` …"""
    token: str
    """`the token from GITHUB_TOKEN` …"""
    sign_in: str
    """How a person gets another token: `gh auth login --hostname H`."""
    widen: str = ""
    """How a person gives the token a scope; `{scope}` stands for it."""
    keys: str = "repo and apiUrl"
    """What of the configuration says where things are."""


def too_many(status: int, headers: Mapping[str, str], data: Any) -> str:
    """Is it refused for being one request too many: `primary` or `secondary`; nothing: it is not."""
    if status not in (403, 429):
        return ""
    message = told(data).lower()
    if "secondary rate limit" in message or "abuse detection" in message:
        return "secondary"
    if headers.get("x-ratelimit-remaining") == "0" or headers.get("ratelimit-remaining") == "0":
        return "primary"
    if "retry-after" in headers:
        return "secondary"
    if status == 429 or "rate limit" in message:
        return "primary" if "x-ratelimit-reset" in headers or "ratelimit-reset" in headers else "secondary"
    return ""


def limited(speaker: Speaker, what: str, until: float) -> Temporary:
    """Nothing may be sent before this time."""
    return Temporary(
        f"{speaker.name} takes no more requests before {clock_text(until)} ({what})",
        "nothing is lost: it goes on by itself then; webhooks spare most requests (see ao doctor)",
        until,
    )


def refusal(speaker: Speaker, what: str, status: int, headers: Mapping[str, str], data: Any) -> AoError:
    """The error that an answer of 400 or more is. `what` names the request: `GET /repos/o/n`."""
    message = told(data)
    if status == 401:
        return Denied(f"{speaker.token} is not accepted by {speaker.name}", speaker.sign_in)
    if status in (403, 451):
        return _forbidden(speaker, what, headers, message)
    if status in (404, 410):
        said = f" ({message})" if message and message != "Not Found" else ""
        return NotFound(
            f"{speaker.name} has no {unquote(what.partition(' ')[2] or what)}{said}",
            f"check its name, and {speaker.keys} in the configuration; what {speaker.token} may not see looks the same",
        )
    if status == 409:
        return Conflict(f"{speaker.name} refuses {what}: {message or 'conflict'}")
    if status == 422:
        return UsageError(f"{speaker.name} refuses {what}: {message or 'it is not valid'}")
    if status >= 500:
        return Temporary(f"{speaker.name} failed with {status} at {what}", "try again later; see its status page")
    return AoError(f"{speaker.name} refuses {what} with {status}: {message or 'no reason given'}")


def _forbidden(speaker: Speaker, what: str, headers: Mapping[str, str], message: str) -> AoError:
    sso = headers.get("x-github-sso", "")
    if "url=" in sso:
        return Denied(
            f"{speaker.token} is not authorized for the organization's single sign-on", sso.partition("url=")[2]
        )
    lacking = lacking_scopes(headers)
    if lacking:
        remedy = (
            speaker.widen.format(scope=lacking[0]) if speaker.widen else f"make a token with the scope {lacking[0]}"
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
    """The scopes that a token has; none: it is of a kind that has no scopes."""
    return _names(headers["x-oauth-scopes"]) if "x-oauth-scopes" in headers else None


def lacking_scopes(headers: Mapping[str, str]) -> list[str]:
    """The scopes of which a token needs one and has none; nothing where that is not told."""
    scopes = scopes_of(headers)
    if scopes is None:
        return []
    accepted = _names(headers.get("x-accepted-oauth-scopes", ""))
    owned = implied(scopes)
    return [] if not accepted or owned & set(accepted) else accepted


def allowed(access: Access) -> Author:
    """Who we are. Raises what the token lacks that nothing goes without."""
    for lack in access.lacks:
        if lack.vital:
            raise Denied(str(lack), lack.remedy)
    return access.author


_IMPLIED = {
    "repo": ("public_repo", "repo:status", "repo_deployment", "repo:invite", "security_events"),
    "admin:org": ("write:org", "read:org"),
    "write:org": ("read:org",),
    "user": ("read:user", "user:email", "user:follow"),
}


def implied(scopes: list[str]) -> set[str]:
    """These scopes and those that they contain."""
    return {*scopes, *(inner for scope in scopes for inner in _IMPLIED.get(scope, ()))}


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def told(data: Any) -> str:
    """What an answer says in words: its message, and the messages of its errors, on one line."""
    if not isinstance(data, Mapping):
        return _line(data) if isinstance(data, str) else ""
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
    return _line(
        "; ".join(dict.fromkeys(part if isinstance(part, str) else json.dumps(part) for part in parts if part))
    )


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_MESSAGE else line[: LONGEST_MESSAGE - 1] + "…"
