"""A GitLab host: gitlab.com, or one's own. Where its doors are, and how to speak with it."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.forges.shared import tokens
from agent_orchestrator.plugins.forges.shared.http import Http, shared
from agent_orchestrator.plugins.forges.shared.refusals import Speaker
from agent_orchestrator.protocols.host import Host

GITLAB = "gitlab.com"
_GLAB = "glab config get token"
_REPO = re.compile(r"[A-Za-z0-9_][\w.-]*(?:/[A-Za-z0-9_][\w.-]*)+")
_SCP = re.compile(r"(?:[\w.-]+@)?([\w.-]+):([^/].*/.*)")


@dataclass(frozen=True, slots=True)
class Place:
    """A project and the host that it is at."""

    repo: str
    """`group/name`, or `group/subgroup/name`."""
    api: str
    web: str
    """What Git and browsers use."""

    @property
    def hostname(self) -> str:
        """As `glab` names it."""
        return urlsplit(self.web).hostname or ""


def place_of(config: Mapping[str, Any], key: str) -> Place:
    """Where a project is, from `repo` (a name or an address) and `apiUrl`; `key` names the part of the configuration."""
    written = str(config.get("repo") or "").strip()
    hostname, repo = _repo_of(written)
    if not _REPO.fullmatch(repo) or any(part in (".", "..") for part in repo.split("/")):
        shown = f"{written!r} is no project of GitLab" if written else "the project has no repo"
        raise UsageError(shown, f"write repo: group/name beside {key}")
    api = str(config.get("apiUrl") or "").strip().rstrip("/") or f"https://{hostname or GITLAB}"
    parts = urlsplit(api)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise UsageError(f"{key}.apiUrl is no address", "for example https://git.example.com/api/v4")
    web = api.removesuffix("/api/v4")
    return Place(repo, f"{web}/api/v4", web)


def _repo_of(written: str) -> tuple[str, str]:
    """Host and path of any way to write a project."""
    text = written.removesuffix("/").removesuffix(".git")
    if "://" in text:
        parts = urlsplit(text)
        return (parts.hostname or "").lower(), parts.path.strip("/")
    scp = _SCP.fullmatch(text)
    if scp:
        return scp[1].lower(), scp[2]
    first, _, rest = text.partition("/")
    return (first.lower(), rest) if "." in first and "/" in rest else ("", text)


def _variables(hostname: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The variables that may hold a token for a host: they are for the host that `glab` is told of, else for gitlab.com alone."""
    named = environ.get("GITLAB_HOST") or environ.get("GL_HOST") or GITLAB
    meant = (urlsplit(named).hostname if "://" in named else named.partition(":")[0]) or ""
    return ("GITLAB_TOKEN", "GITLAB_ACCESS_TOKEN") if meant.casefold() == hostname.casefold() else ()


class GitLabHost:
    """The host of one project, as the plugins of SCM and tracker use it."""

    def __init__(self, config: Mapping[str, Any], host: Host, key: str, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.place = place_of(config, key)
        self.repo = self.place.repo
        """The project's path, as it is called now."""
        self._host = host
        given = tokens.given(config.get("token"), f"{key}.token")
        named = _variables(self.place.hostname, os.environ)
        self._token = given or tokens.found(os.environ, named)
        self._http: Http | None = None
        self._opening = asyncio.Lock()
        self._login: str | None = None
        self._ids: dict[str, int] = {}

    async def http(self) -> Http:
        """The client. Raises `Denied` when there is no token."""
        async with self._opening:
            if self._http is None or (self._http.rejected and self._from_glab):
                token = await self._find()
                self._token = token
                self._http = shared("gitlab", self.place.api, token.digest, lambda: self._made(token))
        return self._http

    @property
    def _from_glab(self) -> bool:
        """`glab` may have another token by now: a person has signed in again."""
        return self._token is not None and self._token.source == _GLAB

    async def _find(self) -> tokens.Token:
        if self._token is not None and not self._from_glab:
            return self._token
        argv = ["glab", "config", "get", "token", "--host", self.place.hostname]
        token = await tokens.from_program(self._host, argv, _GLAB)
        if token is None:
            set_one = "set GITLAB_TOKEN" if self.place.hostname == GITLAB else "name one: token: ${NAME}"
            raise tokens.none_found(self.place.hostname, f"{self._sign_in()}, or {set_one}")
        return token

    @property
    def opened(self) -> Http | None:
        """The client, if something was asked already."""
        return self._http

    def _sign_in(self) -> str:
        return f"glab auth login --hostname {self.place.hostname}"

    def _made(self, token: tokens.Token) -> Http:
        name = "GitLab" if self.place.hostname == GITLAB else f"GitLab at {urlsplit(self.place.web).netloc}"
        speaker = Speaker(name, str(token), f"{self._sign_in()}, or set another one with the scope api")
        return Http(self.place.api, speaker, {"Authorization": f"Bearer {token.value}"}, clock=self._clock)

    async def login(self) -> str:
        """Who the token belongs to, asked once."""
        if self._login is None:
            answer = await (await self.http()).get("user")
            self._login = str(answer.data["username"])
        return self._login

    async def project(self, repo: str = "") -> int:
        """A project's number, which it keeps whatever it is called."""
        path = repo or self.place.repo
        if path not in self._ids:
            answer = await (await self.http()).get(f"projects/{quote(path, safe='')}")
            self._ids[path] = int(answer.data["id"])
            if not repo:
                self.repo = str(answer.data.get("path_with_namespace") or self.repo)
        return self._ids[path]

    async def person(self, name: str) -> int | None:
        """A user's number."""
        answer = await (await self.http()).get(f"users?username={quote(name.removeprefix('@'), safe='')}")
        return next((int(one["id"]) for one in answer.data or []), None)

    def git(self, repo: str) -> tuple[str, dict[str, str]]:
        """Where Git pushes to, and the environment that lets it without asking anybody: no word of it is on a command line."""
        origin = f"{self.place.web}/"
        settings = [("credential.helper", "")]
        if self._token is not None:
            login = self._token.basic("oauth2")
            settings.append((f"http.{origin}.extraHeader", f"Authorization: Basic {login}"))
        else:
            settings.append((f"credential.{self.place.web}.helper", "!glab auth git-credential"))
        env = {"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_COUNT": str(len(settings))}
        for index, (name, value) in enumerate(settings):
            env |= {f"GIT_CONFIG_KEY_{index}": name, f"GIT_CONFIG_VALUE_{index}": value}
        return f"{origin}{repo}.git", env
