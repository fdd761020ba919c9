"""Linear's API: requests to it, its rate limits, and its errors."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from agent_orchestrator.errors import AoError, Denied, NotFound, Temporary, UsageError
from agent_orchestrator.plugins.forges.shared import tokens
from agent_orchestrator.plugins.forges.shared.http import ForgeHttpClient, ForgeResponse, shared_client
from agent_orchestrator.plugins.forges.shared.rate_limits import RequestBudget
from agent_orchestrator.plugins.forges.shared.response_errors import HostText, rate_limit_error

LINEAR_API_URL = "https://api.linear.app/graphql"
"""Linear's API."""
LINEAR_CONFIG_KEYS = "team and apiUrl"
"""The configuration keys that error texts name."""
_LINEAR_RESOURCES = {"core": "requests", "complexity": "complexity"}
"""Linear's name of each resource by ours."""


class LinearBudget(RequestBudget):
    """The budget of Linear, which limits requests and, separately, complexity. Its times are in milliseconds."""

    def record(self, headers: Mapping[str, str], status: int = 200) -> None:
        """Record both rate limits of an answer."""
        for ours, theirs in _LINEAR_RESOURCES.items():
            super().record(_common_headers(headers, ours, theirs), status)
        self.request_count -= 1
        cost = headers.get("x-complexity", "")
        if cost.isascii() and cost.isdigit():
            self.record_cost("complexity", int(cost))

    def record_refusal(self, headers: Mapping[str, str], *, secondary: bool, resource: str = "core") -> float:
        """Record a rate-limit refusal of the resource of which nothing is left."""
        is_complexity_spent = headers.get("x-ratelimit-complexity-remaining") == "0"
        limited_resource = "complexity" if is_complexity_spent else resource
        common_headers = {
            **headers,
            **_common_headers(headers, limited_resource, _LINEAR_RESOURCES.get(limited_resource, limited_resource)),
        }
        return super().record_refusal(common_headers, secondary=secondary, resource=limited_resource)

    def blocked_until(self, resource: str = "core") -> float | None:
        """Return the time before which no request may be sent, or None. Every query needs both resources."""
        times = [
            blocked_until
            for blocked_until in (
                super(LinearBudget, self).blocked_until(needed_resource)
                for needed_resource in {*_LINEAR_RESOURCES, resource}
            )
            if blocked_until is not None
        ]
        return max(times, default=None)


def _common_headers(headers: Mapping[str, str], ours: str, theirs: str) -> dict[str, str]:
    """Return Linear's rate-limit headers under the common names and with times in seconds."""
    limits = {name: headers.get(f"x-ratelimit-{theirs}-{name}", "") for name in ("limit", "remaining", "reset")}
    reset = limits["reset"]
    if reset.isascii() and reset.isdigit():
        limits["reset"] = str(int(reset) // 1000)
    return {"x-ratelimit-resource": ours, **{f"x-ratelimit-{name}": value for name, value in limits.items() if value}}


class LinearHost:
    """The client of Linear with one token."""

    def __init__(self, config: Mapping[str, Any], clock: Callable[[], float] = time.time) -> None:
        self._url = str(config.get("apiUrl") or LINEAR_API_URL).strip().rstrip("/")
        parts = urlsplit(self._url)
        if parts.scheme not in ("https", "http") or not parts.hostname:
            raise UsageError("tracker.apiUrl is no address", f"leave it out for {LINEAR_API_URL}")
        configured_token = tokens.token_from_config(config.get("token"), "tracker.token")
        self._token = configured_token or tokens.token_from_environment_or_keyring(os.environ, ("LINEAR_API_KEY",))
        self._clock = clock
        self.current_client: ForgeHttpClient | None = None
        """The HTTP client, or None before the first request."""

    def http(self) -> ForgeHttpClient:
        """Return the HTTP client. Raise `Denied` if there is no token."""
        if self.current_client is None:
            token = self._token
            if token is None:
                raise tokens.no_token_error("Linear", "make an API key in Linear's settings and set LINEAR_API_KEY")
            self.current_client = shared_client("linear", self._url, token.digest, lambda: self._make_client(token))
        return self.current_client

    def _make_client(self, token: tokens.ForgeToken) -> ForgeHttpClient:
        """Return a new HTTP client for a token."""
        speaker = HostText(
            "Linear", str(token), "make an API key in Linear's settings and set LINEAR_API_KEY", keys=LINEAR_CONFIG_KEYS
        )
        # a personal key is sent without "Bearer", an application's token with it
        is_personal_key = token.value.startswith("lin_api_")
        headers = {
            "Authorization": token.value if is_personal_key else f"Bearer {token.value}",
            "Accept": "application/json",
        }
        return ForgeHttpClient(self._url, speaker, headers, budget=LinearBudget(self._clock))

    async def query(self, document: str, variables: Mapping[str, Any] | None = None, *, safe: bool = True) -> Any:
        """Run a query and return its data. Any error in the answer is raised: a partial answer is not accepted."""
        http = self.http()
        body = {"query": document, "variables": dict(variables or {})}
        answer = await http.call("POST", self._url, body, safe=safe, allow=(400,))
        data = answer.data if isinstance(answer.data, Mapping) else {}
        errors = [error for error in data.get("errors") or [] if isinstance(error, Mapping)]
        if errors or answer.status >= 400 or not isinstance(data.get("data"), Mapping):
            raise _query_error(http, answer, errors)
        return data["data"]


def _query_error(http: ForgeHttpClient, answer: ForgeResponse, errors: Sequence[Mapping[str, Any]]) -> AoError:
    """Return the error that an answer stands for. Linear names its kind in `extensions.code` and `extensions.type`."""
    speaker = http.host_text
    extensions = [error.get("extensions") or {} for error in errors]
    codes = {
        str(extension.get(key, "")).upper().replace(" ", "_") for extension in extensions for key in ("code", "type")
    }
    messages = "; ".join(_message_of(error) for error in errors[:3])[:300] or f"no reason given, status {answer.status}"
    if "RATELIMITED" in codes:
        return rate_limit_error(speaker, "GraphQL", http.budget.record_refusal(answer.headers, secondary=False))
    if codes & {"AUTHENTICATION_ERROR", "UNAUTHENTICATED"}:
        http.is_token_rejected = True
        return Denied(f"{speaker.token} is not accepted by Linear", speaker.sign_in)
    if codes & {"FORBIDDEN", "FEATURE_NOT_ACCESSIBLE"}:
        return Denied(f"Linear forbids it: {messages}", speaker.sign_in)
    if any(str(error.get("message", "")).startswith("Entity not found") for error in errors):
        remedy = f"check its name, and {LINEAR_CONFIG_KEYS} in the configuration; what {speaker.token} may not see looks the same"
        return NotFound(f"Linear: {messages.rstrip('.')}", remedy)
    if codes & {"INPUT_ERROR", "INVALID_INPUT", "USER_ERROR", "GRAPHQL_VALIDATION_FAILED", "GRAPHQL_ERROR"}:
        return UsageError(f"Linear refuses it: {messages}")
    if "too complex" in messages.lower():
        return UsageError(f"Linear refuses the query: {messages}")
    return Temporary(f"Linear could not answer: {messages}", "try again later; see its status page")


def _message_of(error: Mapping[str, Any]) -> str:
    """Return the message of an error, preferably the one for people."""
    extensions = error.get("extensions") or {}
    return " ".join(str(extensions.get("userPresentableMessage") or error.get("message") or "").split())
