"""A Jira site: Atlassian's cloud, or a server of one's own. Where it is, and how to speak with it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.forges.shared import tokens
from agent_orchestrator.plugins.forges.shared.http import Answer, Http, shared
from agent_orchestrator.plugins.forges.shared.refusals import Speaker, told

_PROJECT = re.compile(r"[A-Z][A-Z0-9_]*")
_KEYS = "https://id.atlassian.com/manage-profile/security/api-tokens"


class JiraHost:
    """One project at one site by one token."""

    def __init__(self, config: Mapping[str, Any], clock: Callable[[], float] = time.time) -> None:
        self.url = str(config.get("url") or config.get("host") or "").strip().rstrip("/")
        if self.url and "://" not in self.url:
            self.url = f"https://{self.url}"
        parts = urlsplit(self.url)
        if parts.scheme not in ("https", "http") or not parts.hostname:
            raise UsageError("tracker.url is no address", "for example url: https://acme.atlassian.net")
        self.project = str(config.get("project") or config.get("projectKey") or "").strip().upper()
        if not _PROJECT.fullmatch(self.project):
            raise UsageError("tracker.project is no project's key", "write it as in its issues' names: project: APP")
        version = str(config.get("api") or "")
        if version not in ("", "2", "3"):
            raise UsageError("tracker.api is neither 3 nor 2", "3 is Atlassian's cloud, 2 a server of your own")
        hostname = parts.hostname
        known = hostname.endswith((".atlassian.net", ".jira.com")) or hostname == "api.atlassian.com"
        self.cloud = version == "3" or (not version and known)
        """Its texts are documents, its people have account ids."""
        given = tokens.given(config.get("token"), "tracker.token")
        self._token = given or tokens.found(os.environ, ("JIRA_API_TOKEN",))
        self._email = str(config.get("email") or os.environ.get("JIRA_EMAIL") or "").strip()
        self._clock = clock
        self.opened: Http | None = None
        """The client, if something was asked already."""

    def http(self) -> Http:
        """The client. Raises `Denied` when there is no token."""
        if self.opened is None:
            token = self._token
            if token is None:
                raise tokens.none_found(f"Jira at {urlsplit(self.url).netloc}", self._sign_in())
            who = f"{token.digest} {self._email}"
            self.opened = shared("jira", self.url, who, lambda: self._made(token))
        return self.opened

    def _sign_in(self) -> str:
        if self.cloud:
            return f"make an API token at {_KEYS} and set JIRA_EMAIL and JIRA_API_TOKEN"
        return "make a personal access token in your profile there and set JIRA_API_TOKEN"

    def _made(self, token: tokens.Token) -> Http:
        name = f"Jira at {urlsplit(self.url).netloc}"
        if self._email:
            login = token.basic(self._email)
            authorization = f"Basic {login}"
        else:
            authorization = f"Bearer {token.value}"
        headers = {"Authorization": authorization, "Accept": "application/json", "X-Atlassian-Token": "no-check"}
        base = f"{self.url}/rest/api/{3 if self.cloud else 2}"
        return Http(
            base, Speaker(name, str(token), self._sign_in(), keys="project and url"), headers, clock=self._clock
        )

    async def get(self, path: str) -> Any:
        """Read something."""
        return (await self.http().get(path)).data

    async def call(self, method: str, path: str, body: Any, *, safe: bool = False) -> Answer:
        """Do something; what Jira finds wrong with it is told in its words."""
        http = self.http()
        answer = await http.call(method, path, body, safe=safe, allow=(400,))
        if answer.status == 400:
            why = told(answer.data) or "no reason given"
            raise UsageError(f"{http.speaker.name} refuses {method} /{path.partition('?')[0]}: {why}")
        return answer
