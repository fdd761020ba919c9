"""A GitHub host: github.com, or one of an enterprise's own. Where its doors are, and how to speak with it."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from agent_orchestrator.errors import AoError, Denied, NotFound, Temporary, UsageError
from agent_orchestrator.plugins.forges.shared import tokens
from agent_orchestrator.plugins.forges.shared.http import Answer, Http, shared
from agent_orchestrator.plugins.forges.shared.refusals import Speaker, limited
from agent_orchestrator.protocols.host import Host

GITHUB = "https://api.github.com"
VIEWER = "query { viewer { login } }"
_GH = "gh auth token"
_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class Place:
    """A repository and the host that it is at."""

    repo: str
    api: str
    """Of the REST API, without a slash at its end."""
    graphql: str
    web: str
    """What Git and browsers use."""

    @property
    def hostname(self) -> str:
        """As `gh` names it."""
        return urlsplit(self.web).hostname or ""

    @property
    def owner(self) -> str:
        """Whose it is."""
        return self.repo.partition("/")[0]


def place_of(config: Mapping[str, Any], key: str) -> Place:
    """Where a project's repository is, from `repo` (a name or an address) and `apiUrl`; `key` names the part of the configuration."""
    written = str(config.get("repo") or "").strip()
    hostname, repo = _repo_of(written)
    if not _REPO.fullmatch(repo) or repo.endswith(("/.", "/..")):
        shown = f"{written!r} is no repository of GitHub" if written else "the project has no repo"
        raise UsageError(shown, f"write repo: owner/name beside {key}")
    api = str(config.get("apiUrl") or "").strip().rstrip("/")
    if not api:
        api = GITHUB if hostname in ("", "github.com", "www.github.com", "ssh.github.com") else _api_of(hostname)
    parts = urlsplit(api)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise UsageError(f"{key}.apiUrl is no address", "for example https://git.example.com/api/v3")
    if not parts.path and not parts.hostname.startswith("api."):
        api += "/api/v3"
    origin = f"{parts.scheme}://{parts.netloc}"
    if api.endswith("/api/v3"):
        return Place(repo, api, api.removesuffix("/v3") + "/graphql", api.removesuffix("/api/v3"))
    return Place(repo, api, f"{api}/graphql", origin.replace("://api.", "://", 1))


def _repo_of(written: str) -> tuple[str, str]:
    """Host and `owner/name` of any way to write a repository."""
    text = written.removesuffix("/").removesuffix(".git")
    if "://" in text:
        parts = urlsplit(text)
        return (parts.hostname or "").lower(), parts.path.strip("/")
    scp = re.fullmatch(r"(?:[\w.-]+@)?([\w.-]+):([^/].*/.*)", text)
    if scp:
        return scp[1].lower(), scp[2]
    if text.count("/") == 2 and "." in text.partition("/")[0]:
        hostname, _, repo = text.partition("/")
        return hostname.lower(), repo
    return "", text


def _api_of(hostname: str) -> str:
    return f"https://api.{hostname}" if hostname.endswith(".ghe.com") else f"https://{hostname}/api/v3"


class GitHubHost:
    """The host of one repository, as the plugins of SCM and tracker use it."""

    def __init__(self, config: Mapping[str, Any], host: Host, key: str, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.place = place_of(config, key)
        self._host = host
        given = tokens.given(config.get("token"), f"{key}.token")
        self._token = given or tokens.found(os.environ, tokens.github_variables(self.place.hostname))
        self._http: Http | None = None
        self._opening = asyncio.Lock()
        self._login: str | None = None

    @property
    def token(self) -> tokens.Token | None:
        """The token, as far as it is known without starting a program."""
        return self._token

    async def http(self) -> Http:
        """The client. Raises `Denied` when there is no token."""
        async with self._opening:
            if self._http is None or (self._http.rejected and self._from_gh):
                token = await self._find()
                self._token = token
                self._http = shared("github", self.place.api, token.digest, lambda: self._made(token))
        return self._http

    @property
    def _from_gh(self) -> bool:
        """`gh` may have another token by now: a person has signed in again."""
        return self._token is not None and self._token.source == _GH

    async def _find(self) -> tokens.Token:
        if self._token is not None and not self._from_gh:
            return self._token
        argv = ["gh", "auth", "token", "--hostname", self.place.hostname]
        token = await tokens.from_program(self._host, argv, _GH)
        if token is None:
            names = tokens.github_variables(self.place.hostname)
            raise tokens.none_found(self.place.hostname, f"{self._sign_in()}, or set {names[0]}")
        return token

    @property
    def opened(self) -> Http | None:
        """The client, if something was asked already."""
        return self._http

    def _sign_in(self) -> str:
        return f"gh auth login --hostname {self.place.hostname}"

    def _made(self, token: tokens.Token) -> Http:
        name = "GitHub" if self.place.hostname == "github.com" else f"GitHub at {urlsplit(self.place.web).netloc}"
        widen = f"gh auth refresh --hostname {self.place.hostname} --scopes {{scope}}"
        speaker = Speaker(name, str(token), f"{self._sign_in()}, or set another one", widen)
        headers = {
            "Authorization": f"Bearer {token.value}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        graphql = urlsplit(self.place.graphql).path
        return Http(
            self.place.api,
            speaker,
            headers,
            clock=self._clock,
            resource=lambda path: "graphql" if path == graphql else "core",
        )

    async def graphql(self, document: str, variables: Mapping[str, Any], *, safe: bool = True) -> tuple[Any, list[Any]]:
        """Run a query: its data, and what could not be had. Raises when there is no data at all."""
        http = await self.http()
        answer = await http.call(
            "POST", self.place.graphql, {"query": document, "variables": dict(variables)}, safe=safe
        )
        body = answer.data if isinstance(answer.data, Mapping) else {}
        errors = [error for error in body.get("errors") or [] if isinstance(error, Mapping)]
        data = body.get("data")
        cost = (data.get("rateLimit") or {}).get("cost") if isinstance(data, Mapping) else None
        http.budget.spent("graphql", cost if isinstance(cost, int) else 1)
        if not isinstance(data, Mapping) or (errors and all(value is None for value in data.values())):
            raise self._failed(http, answer, errors)
        return data, errors

    def _failed(self, http: Http, answer: Answer, errors: Sequence[Mapping[str, Any]]) -> AoError:
        kinds = {str(error.get("type", "")) for error in errors}
        said = "; ".join(" ".join(str(error.get("message", "")).split()) for error in errors[:3])[:300]
        name = http.speaker.name
        if "RATE_LIMITED" in kinds:
            until = http.budget.refused(answer.headers, secondary=False, resource="graphql")
            return limited(http.speaker, "GraphQL", until)
        if "NOT_FOUND" in kinds:
            return NotFound(
                f"{name}: {said}",
                f"check its name, and repo in the configuration; what {http.speaker.token} may not see looks the same",
            )
        if kinds & {"FORBIDDEN", "INSUFFICIENT_SCOPES"}:
            return Denied(f"{name}: {said}", http.speaker.sign_in)
        if kinds & {"UNPROCESSABLE", "UNPROCESSABLE_ENTITY", "INVALID"}:
            return UsageError(f"{name}: {said}")
        return Temporary(f"{name} could not answer: {said or 'no reason given'}", "try again later")

    async def login(self) -> str:
        """Who the token belongs to, asked once."""
        if self._login is None:
            data, _ = await self.graphql(VIEWER, {})
            self._login = str(data["viewer"]["login"])
        return self._login

    def git(self, repo: str) -> tuple[str, dict[str, str]]:
        """Where Git pushes to, and the environment that lets it without asking anybody: no word of it is on a command line."""
        origin = f"{self.place.web}/"
        settings = [("credential.helper", "")]
        if self._token is not None:
            login = self._token.basic("x-access-token")
            settings.append((f"http.{origin}.extraHeader", f"Authorization: Basic {login}"))
        else:
            settings.append((f"credential.{self.place.web}.helper", "!gh auth git-credential"))
        env = {"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_COUNT": str(len(settings))}
        for index, (name, value) in enumerate(settings):
            env |= {f"GIT_CONFIG_KEY_{index}": name, f"GIT_CONFIG_VALUE_{index}": value}
        return f"{origin}{repo}.git", env
