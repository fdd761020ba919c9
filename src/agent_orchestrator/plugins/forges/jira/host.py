"""A Jira site, Atlassian's cloud or a self-managed server: its URL, the token, and requests to it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.forges.shared import tokens
from agent_orchestrator.plugins.forges.shared.http import ForgeHttpClient, ForgeResponse, shared_client
from agent_orchestrator.plugins.forges.shared.response_errors import HostText, error_message

_PROJECT_KEY = re.compile(r"[A-Z][A-Z0-9_]*")
"""A project's key."""
_TOKENS_URL = "https://id.atlassian.com/manage-profile/security/api-tokens"
"""The page where a person makes an API token of Atlassian's cloud."""


class JiraHost:
    """One project at one site with one token."""

    def __init__(self, config: Mapping[str, Any], clock: Callable[[], float] = time.time) -> None:
        self.url = str(config.get("url") or config.get("host") or "").strip().rstrip("/")
        if self.url and "://" not in self.url:
            self.url = f"https://{self.url}"
        parts = urlsplit(self.url)
        if parts.scheme not in ("https", "http") or not parts.hostname:
            raise UsageError("tracker.url is no address", "for example url: https://acme.atlassian.net")
        self.project_key = str(config.get("project") or config.get("projectKey") or "").strip().upper()
        if not _PROJECT_KEY.fullmatch(self.project_key):
            raise UsageError("tracker.project is no project's key", "write it as in its issues' names: project: APP")
        version = str(config.get("api") or "")
        if version not in ("", "2", "3"):
            raise UsageError("tracker.api is neither 3 nor 2", "3 is Atlassian's cloud, 2 a server of your own")
        hostname = parts.hostname
        is_cloud_host = hostname.endswith((".atlassian.net", ".jira.com")) or hostname == "api.atlassian.com"
        self.is_cloud = version == "3" or (not version and is_cloud_host)
        """True for Atlassian's cloud: its texts are documents, and people have account ids."""
        configured_token = tokens.token_from_config(config.get("token"), "tracker.token")
        self._token = configured_token or tokens.token_from_environment_or_keyring(os.environ, ("JIRA_API_TOKEN",))
        self._email = str(config.get("email") or os.environ.get("JIRA_EMAIL") or "").strip()
        self._clock = clock
        self.current_client: ForgeHttpClient | None = None
        """The HTTP client, or None before the first request."""

    def http(self) -> ForgeHttpClient:
        """Return the HTTP client. Raise `Denied` if there is no token."""
        if self.current_client is None:
            token = self._token
            if token is None:
                raise tokens.no_token_error(f"Jira at {urlsplit(self.url).netloc}", self._sign_in_hint())
            credentials = f"{token.digest} {self._email}"
            self.current_client = shared_client("jira", self.url, credentials, lambda: self._make_client(token))
        return self.current_client

    def _sign_in_hint(self) -> str:
        """Return how a person gets a token, for error texts."""
        if self.is_cloud:
            return f"make an API token at {_TOKENS_URL} and set JIRA_EMAIL and JIRA_API_TOKEN"
        return "make a personal access token in your profile there and set JIRA_API_TOKEN"

    def _make_client(self, token: tokens.ForgeToken) -> ForgeHttpClient:
        """Return a new HTTP client for a token: with an email as basic credentials, otherwise as a bearer token."""
        name = f"Jira at {urlsplit(self.url).netloc}"
        if self._email:
            login = token.basic_credentials(self._email)
            authorization = f"Basic {login}"
        else:
            authorization = f"Bearer {token.value}"
        headers = {"Authorization": authorization, "Accept": "application/json", "X-Atlassian-Token": "no-check"}
        base = f"{self.url}/rest/api/{3 if self.is_cloud else 2}"
        return ForgeHttpClient(
            base, HostText(name, str(token), self._sign_in_hint(), keys="project and url"), headers, clock=self._clock
        )

    async def get(self, path: str) -> Any:
        """Return the JSON of a path."""
        return (await self.http().get(path)).data

    async def call(self, method: str, path: str, body: Any, *, safe: bool = False) -> ForgeResponse:
        """Send a request. If Jira rejects it as invalid, raise `UsageError` with Jira's own words."""
        http = self.http()
        answer = await http.call(method, path, body, safe=safe, allow=(400,))
        if answer.status == 400:
            reason = error_message(answer.data) or "no reason given"
            raise UsageError(f"{http.host_text.name} refuses {method} /{path.partition('?')[0]}: {reason}")
        return answer
