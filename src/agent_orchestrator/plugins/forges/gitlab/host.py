"""The GitLab host of a project, gitlab.com or self-managed: its addresses, the token, and ids of projects and users."""

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
from agent_orchestrator.plugins.forges.shared.http import ForgeHttpClient, shared_client
from agent_orchestrator.plugins.forges.shared.response_errors import HostText
from agent_orchestrator.protocols.host import Host

GITLAB_HOSTNAME = "gitlab.com"
"""The host that is used if none is configured."""
_GLAB_SOURCE = "glab config get token"
"""The source of a token that `glab` printed."""
_REPO = re.compile(r"[A-Za-z0-9_][\w.-]*(?:/[A-Za-z0-9_][\w.-]*)+")
_SCP = re.compile(r"(?:[\w.-]+@)?([\w.-]+):([^/].*/.*)")


@dataclass(frozen=True, slots=True)
class ProjectAddress:
    """A project and the addresses of its host."""

    repo: str
    """The path: `group/name`, or `group/subgroup/name`."""
    api: str
    """The base URL of the REST API, without a slash at its end."""
    web: str
    """The base URL for Git and browsers."""

    @property
    def hostname(self) -> str:
        """The host's name as `glab` uses it."""
        return urlsplit(self.web).hostname or ""


def parse_project_address(config: Mapping[str, Any], key: str) -> ProjectAddress:
    """Return where a project is, from `repo` (a path or a URL) and `apiUrl`.

    `key` is the section of the configuration, for error texts. Raise `UsageError` if either value is malformed.
    """
    notation = str(config.get("repo") or "").strip()
    hostname, repo = _split_repo(notation)
    if not _REPO.fullmatch(repo) or any(part in (".", "..") for part in repo.split("/")):
        problem = f"{notation!r} is no project of GitLab" if notation else "the project has no repo"
        raise UsageError(problem, f"write repo: group/name beside {key}")
    api = str(config.get("apiUrl") or "").strip().rstrip("/") or f"https://{hostname or GITLAB_HOSTNAME}"
    parts = urlsplit(api)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise UsageError(f"{key}.apiUrl is no address", "for example https://git.example.com/api/v4")
    web = api.removesuffix("/api/v4")
    return ProjectAddress(repo, f"{web}/api/v4", web)


def _split_repo(notation: str) -> tuple[str, str]:
    """Split any notation of a project into a host, or "" if it names none, and a path."""
    text = notation.removesuffix("/").removesuffix(".git")
    if "://" in text:
        parts = urlsplit(text)
        return (parts.hostname or "").lower(), parts.path.strip("/")
    scp = _SCP.fullmatch(text)
    if scp:
        return scp[1].lower(), scp[2]
    hostname, _, rest = text.partition("/")
    return (hostname.lower(), rest) if "." in hostname and "/" in rest else ("", text)


def _token_variables(hostname: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the variables that may hold a token for a host.

    They belong to the host that is set for `glab`, or to gitlab.com if none is set.
    """
    configured = environ.get("GITLAB_HOST") or environ.get("GL_HOST") or GITLAB_HOSTNAME
    token_host = (urlsplit(configured).hostname if "://" in configured else configured.partition(":")[0]) or ""
    return ("GITLAB_TOKEN", "GITLAB_ACCESS_TOKEN") if token_host.casefold() == hostname.casefold() else ()


class GitLabHost:
    """The host of one project, as used by the plugins of the slots `scm` and `tracker`."""

    def __init__(self, config: Mapping[str, Any], host: Host, key: str, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.address = parse_project_address(config, key)
        self.repo = self.address.repo
        """The project's current path."""
        self._host = host
        configured_token = tokens.token_from_config(config.get("token"), f"{key}.token")
        variables = _token_variables(self.address.hostname, os.environ)
        self._token = configured_token or tokens.token_from_environment_or_keyring(os.environ, variables)
        self._http: ForgeHttpClient | None = None
        self._opening = asyncio.Lock()
        self._login: str | None = None
        self._ids: dict[str, int] = {}

    async def http(self) -> ForgeHttpClient:
        """Return the HTTP client. Raise `Denied` if there is no token."""
        async with self._opening:
            if self._http is None or (self._http.is_token_rejected and self._is_from_glab):
                token = await self._find_token()
                self._token = token
                self._http = shared_client("gitlab", self.address.api, token.digest, lambda: self._make_client(token))
        return self._http

    @property
    def _is_from_glab(self) -> bool:
        """True if the token came from `glab`, which may have another one after a person has signed in again."""
        return self._token is not None and self._token.source == _GLAB_SOURCE

    async def _find_token(self) -> tokens.ForgeToken:
        """Return the token, asking `glab` if none is configured. Raise `Denied` if there is none."""
        if self._token is not None and not self._is_from_glab:
            return self._token
        argv = ["glab", "config", "get", "token", "--host", self.address.hostname]
        token = await tokens.token_from_program(self._host, argv, _GLAB_SOURCE)
        if token is None:
            alternative = "set GITLAB_TOKEN" if self.address.hostname == GITLAB_HOSTNAME else "name one: token: ${NAME}"
            raise tokens.no_token_error(self.address.hostname, f"{self._sign_in_command()}, or {alternative}")
        return token

    @property
    def current_client(self) -> ForgeHttpClient | None:
        """The HTTP client, or None before the first request."""
        return self._http

    def _sign_in_command(self) -> str:
        """Return the command that signs in at this host."""
        return f"glab auth login --hostname {self.address.hostname}"

    def _make_client(self, token: tokens.ForgeToken) -> ForgeHttpClient:
        """Return a new HTTP client for a token."""
        name = (
            "GitLab" if self.address.hostname == GITLAB_HOSTNAME else f"GitLab at {urlsplit(self.address.web).netloc}"
        )
        speaker = HostText(name, str(token), f"{self._sign_in_command()}, or set another one with the scope api")
        return ForgeHttpClient(self.address.api, speaker, {"Authorization": f"Bearer {token.value}"}, clock=self._clock)

    async def login(self) -> str:
        """Return the username of the token, read once."""
        if self._login is None:
            answer = await (await self.http()).get("user")
            self._login = str(answer.data["username"])
        return self._login

    async def project_id(self, repo: str = "") -> int:
        """Return the id of a project, which does not change when the project is renamed."""
        path = repo or self.address.repo
        if path not in self._ids:
            answer = await (await self.http()).get(f"projects/{quote(path, safe='')}")
            self._ids[path] = int(answer.data["id"])
            if not repo:
                self.repo = str(answer.data.get("path_with_namespace") or self.repo)
        return self._ids[path]

    async def user_id(self, name: str) -> int | None:
        """Return a user's id, or None if there is no such user."""
        answer = await (await self.http()).get(f"users?username={quote(name.removeprefix('@'), safe='')}")
        return next((int(user["id"]) for user in answer.data or []), None)

    def git_remote(self, repo: str) -> tuple[str, dict[str, str]]:
        """Return the URL that Git pushes to, and the environment with its credentials.

        Credentials are passed by environment because command lines are visible to other processes. Git never prompts.
        """
        origin = f"{self.address.web}/"
        settings = [("credential.helper", "")]
        if self._token is not None:
            login = self._token.basic_credentials("oauth2")
            settings.append((f"http.{origin}.extraHeader", f"Authorization: Basic {login}"))
        else:
            settings.append((f"credential.{self.address.web}.helper", "!glab auth git-credential"))
        env = {"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_COUNT": str(len(settings))}
        for index, (name, value) in enumerate(settings):
            env |= {f"GIT_CONFIG_KEY_{index}": name, f"GIT_CONFIG_VALUE_{index}": value}
        return f"{origin}{repo}.git", env
