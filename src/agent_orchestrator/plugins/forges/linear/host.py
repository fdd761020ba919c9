"""Linear: how to speak with it, and what its answers mean."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from agent_orchestrator.errors import AoError, Denied, NotFound, Temporary, UsageError
from agent_orchestrator.plugins.forges.shared import tokens
from agent_orchestrator.plugins.forges.shared.http import Answer, Http, shared
from agent_orchestrator.plugins.forges.shared.refusals import Speaker, limited
from agent_orchestrator.plugins.forges.shared.request_budget import Budget

LINEAR = "https://api.linear.app/graphql"
KEYS = "team and apiUrl"
_KINDS = {"core": "requests", "complexity": "complexity"}
"""Our names for what Linear grants, and its own."""


class LinearBudget(Budget):
    """Linear grants requests and, apart from them, complexity; its times are in milliseconds."""

    def seen(self, headers: Mapping[str, str], status: int = 200) -> None:
        """Take in what an answer says of both."""
        for ours, theirs in _KINDS.items():
            super().seen(_plain(headers, ours, theirs), status)
        self.requests -= 1
        cost = headers.get("x-complexity", "")
        if cost.isascii() and cost.isdigit():
            self.spent("complexity", int(cost))

    def refused(self, headers: Mapping[str, str], *, secondary: bool, resource: str = "core") -> float:
        """A request was one too many: of the kind of which less is left."""
        spent = headers.get("x-ratelimit-complexity-remaining") == "0"
        ours = "complexity" if spent else resource
        plain = {**headers, **_plain(headers, ours, _KINDS.get(ours, ours))}
        return super().refused(plain, secondary=secondary, resource=ours)

    def until(self, resource: str = "core") -> float | None:
        """Every query needs both."""
        held = [at for at in (super(LinearBudget, self).until(kind) for kind in {*_KINDS, resource}) if at is not None]
        return max(held, default=None)


def _plain(headers: Mapping[str, str], ours: str, theirs: str) -> dict[str, str]:
    """Linear's headers as others write them."""
    found = {name: headers.get(f"x-ratelimit-{theirs}-{name}", "") for name in ("limit", "remaining", "reset")}
    reset = found["reset"]
    if reset.isascii() and reset.isdigit():
        found["reset"] = str(int(reset) // 1000)
    return {"x-ratelimit-resource": ours, **{f"x-ratelimit-{name}": value for name, value in found.items() if value}}


class LinearHost:
    """Linear by one token."""

    def __init__(self, config: Mapping[str, Any], clock: Callable[[], float] = time.time) -> None:
        self._url = str(config.get("apiUrl") or LINEAR).strip().rstrip("/")
        parts = urlsplit(self._url)
        if parts.scheme not in ("https", "http") or not parts.hostname:
            raise UsageError("tracker.apiUrl is no address", f"leave it out for {LINEAR}")
        given = tokens.given(config.get("token"), "tracker.token")
        self._token = given or tokens.found(os.environ, ("LINEAR_API_KEY",))
        self._clock = clock
        self.opened: Http | None = None
        """The client, if something was asked already."""

    def http(self) -> Http:
        """The client. Raises `Denied` when there is no token."""
        if self.opened is None:
            token = self._token
            if token is None:
                raise tokens.none_found("Linear", "make an API key in Linear's settings and set LINEAR_API_KEY")
            self.opened = shared("linear", self._url, token.digest, lambda: self._made(token))
        return self.opened

    def _made(self, token: tokens.Token) -> Http:
        speaker = Speaker(
            "Linear", str(token), "make an API key in Linear's settings and set LINEAR_API_KEY", keys=KEYS
        )
        own = token.value.startswith("lin_api_")  # a person's key is sent bare, an application's token is not
        headers = {"Authorization": token.value if own else f"Bearer {token.value}", "Accept": "application/json"}
        return Http(self._url, speaker, headers, budget=LinearBudget(self._clock))

    async def ask(self, document: str, variables: Mapping[str, Any] | None = None, *, safe: bool = True) -> Any:
        """Run a query; its data. What could not be had is an error: parts of an answer are not taken for the whole."""
        http = self.http()
        body = {"query": document, "variables": dict(variables or {})}
        answer = await http.call("POST", self._url, body, safe=safe, allow=(400,))
        data = answer.data if isinstance(answer.data, Mapping) else {}
        errors = [error for error in data.get("errors") or [] if isinstance(error, Mapping)]
        if errors or answer.status >= 400 or not isinstance(data.get("data"), Mapping):
            raise _failed(http, answer, errors)
        return data["data"]


def _failed(http: Http, answer: Answer, errors: Sequence[Mapping[str, Any]]) -> AoError:
    """The error that an answer is. Linear names its kind in `extensions.code` and `extensions.type`."""
    speaker = http.speaker
    more = [error.get("extensions") or {} for error in errors]
    codes = {str(one.get(key, "")).upper().replace(" ", "_") for one in more for key in ("code", "type")}
    said = "; ".join(_said(error) for error in errors[:3])[:300] or f"no reason given, status {answer.status}"
    if "RATELIMITED" in codes:
        return limited(speaker, "GraphQL", http.budget.refused(answer.headers, secondary=False))
    if codes & {"AUTHENTICATION_ERROR", "UNAUTHENTICATED"}:
        http.rejected = True
        return Denied(f"{speaker.token} is not accepted by Linear", speaker.sign_in)
    if codes & {"FORBIDDEN", "FEATURE_NOT_ACCESSIBLE"}:
        return Denied(f"Linear forbids it: {said}", speaker.sign_in)
    if any(str(error.get("message", "")).startswith("Entity not found") for error in errors):
        remedy = f"check its name, and {KEYS} in the configuration; what {speaker.token} may not see looks the same"
        return NotFound(f"Linear: {said.rstrip('.')}", remedy)
    if codes & {"INPUT_ERROR", "INVALID_INPUT", "USER_ERROR", "GRAPHQL_VALIDATION_FAILED", "GRAPHQL_ERROR"}:
        return UsageError(f"Linear refuses it: {said}")
    if "too complex" in said.lower():
        return UsageError(f"Linear refuses the query: {said}")
    return Temporary(f"Linear could not answer: {said}", "try again later; see its status page")


def _said(error: Mapping[str, Any]) -> str:
    more = error.get("extensions") or {}
    return " ".join(str(more.get("userPresentableMessage") or error.get("message") or "").split())
