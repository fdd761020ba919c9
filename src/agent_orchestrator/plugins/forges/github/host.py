"""The GitHub host of a repository, github.com or GitHub Enterprise: its addresses, the token, and GraphQL requests."""

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
from agent_orchestrator.plugins.forges.shared.http import ForgeHttpClient, ForgeResponse, shared_client
from agent_orchestrator.plugins.forges.shared.response_errors import HostText, rate_limit_error
from agent_orchestrator.protocols.host import Host

GITHUB_API_URL = "https://api.github.com"
"""The REST API of github.com."""
VIEWER_QUERY = "query { viewer { login } }"
"""The query for the token's login."""
_GH_SOURCE = "gh auth token"
"""The source of a token that `gh` printed."""
_REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class RepositoryAddress:
    """A repository and the addresses of its host."""

    repo: str
    api: str
    """The base URL of the REST API, without a slash at its end."""
    graphql: str
    web: str
    """The base URL for Git and browsers."""

    @property
    def hostname(self) -> str:
        """The host's name as `gh` uses it."""
        return urlsplit(self.web).hostname or ""

    @property
    def owner(self) -> str:
        """The user or organization that owns the repository."""
        return self.repo.partition("/")[0]


def parse_repository_address(config: Mapping[str, Any], key: str) -> RepositoryAddress:
    """Return where a project's repository is, from `repo` (a name or a URL) and `apiUrl`.

    `key` is the section of the configuration, for error texts. Raise `UsageError` if either value is malformed.
    """
    written = str(config.get("repo") or "").strip()
    hostname, repo = _split_repo(written)
    if not _REPO.fullmatch(repo) or repo.endswith(("/.", "/..")):
        problem = f"{written!r} is no repository of GitHub" if written else "the project has no repo"
        raise UsageError(problem, f"write repo: owner/name beside {key}")
    api = str(config.get("apiUrl") or "").strip().rstrip("/")
    if not api:
        api = (
            GITHUB_API_URL
            if hostname in ("", "github.com", "www.github.com", "ssh.github.com")
            else _default_api(hostname)
        )
    parts = urlsplit(api)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise UsageError(f"{key}.apiUrl is no address", "for example https://git.example.com/api/v3")
    if not parts.path and not parts.hostname.startswith("api."):
        api += "/api/v3"
    origin = f"{parts.scheme}://{parts.netloc}"
    if api.endswith("/api/v3"):
        return RepositoryAddress(repo, api, api.removesuffix("/v3") + "/graphql", api.removesuffix("/api/v3"))
    return RepositoryAddress(repo, api, f"{api}/graphql", origin.replace("://api.", "://", 1))


def _split_repo(notation: str) -> tuple[str, str]:
    """Split any notation of a repository into a host, or "" if it names none, and `owner/name`."""
    text = notation.removesuffix("/").removesuffix(".git")
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


def _default_api(hostname: str) -> str:
    """Return the URL of the REST API of a host."""
    return f"https://api.{hostname}" if hostname.endswith(".ghe.com") else f"https://{hostname}/api/v3"


class GitHubHost:
    """The host of one repository, as used by the plugins of the slots `scm` and `tracker`."""

    def __init__(self, config: Mapping[str, Any], host: Host, key: str, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.address = parse_repository_address(config, key)
        self._host = host
        configured_token = tokens.token_from_config(config.get("token"), f"{key}.token")
        self._token = configured_token or tokens.token_from_environment_or_keyring(
            os.environ, tokens.github_token_variables(self.address.hostname)
        )
        self._http: ForgeHttpClient | None = None
        self._opening = asyncio.Lock()
        self._login: str | None = None

    @property
    def token(self) -> tokens.ForgeToken | None:
        """The token, if it is known without starting a program."""
        return self._token

    async def http(self) -> ForgeHttpClient:
        """Return the HTTP client. Raise `Denied` if there is no token."""
        async with self._opening:
            if self._http is None or (self._http.is_token_rejected and self._is_from_gh):
                token = await self._find_token()
                self._token = token
                self._http = shared_client("github", self.address.api, token.digest, lambda: self._make_client(token))
        return self._http

    @property
    def _is_from_gh(self) -> bool:
        """True if the token came from `gh`: if the forge rejects it, `gh` is asked again, as a person may have signed in meanwhile."""
        return self._token is not None and self._token.source == _GH_SOURCE

    async def _find_token(self) -> tokens.ForgeToken:
        """Return the token, asking `gh` if none is configured. Raise `Denied` if there is none."""
        if self._token is not None and not self._is_from_gh:
            return self._token
        argv = ["gh", "auth", "token", "--hostname", self.address.hostname]
        token = await tokens.token_from_program(self._host, argv, _GH_SOURCE)
        if token is None:
            names = tokens.github_token_variables(self.address.hostname)
            raise tokens.no_token_error(self.address.hostname, f"{self._sign_in_command()}, or set {names[0]}")
        return token

    @property
    def current_client(self) -> ForgeHttpClient | None:
        """The HTTP client, or None before the first request."""
        return self._http

    def _sign_in_command(self) -> str:
        """Return the command that signs in at this host."""
        return f"gh auth login --hostname {self.address.hostname}"

    def _make_client(self, token: tokens.ForgeToken) -> ForgeHttpClient:
        """Return a new HTTP client for a token."""
        name = "GitHub" if self.address.hostname == "github.com" else f"GitHub at {urlsplit(self.address.web).netloc}"
        widen = f"gh auth refresh --hostname {self.address.hostname} --scopes {{scope}}"
        speaker = HostText(name, str(token), f"{self._sign_in_command()}, or set another one", widen)
        headers = {
            "Authorization": f"Bearer {token.value}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
        }
        graphql = urlsplit(self.address.graphql).path
        return ForgeHttpClient(
            self.address.api,
            speaker,
            headers,
            clock=self._clock,
            resource=lambda path: "graphql" if path == graphql else "core",
        )

    async def graphql(self, document: str, variables: Mapping[str, Any], *, safe: bool = True) -> tuple[Any, list[Any]]:
        """Run a query and return its data and its errors. Raise an error if there is no data at all."""
        http = await self.http()
        answer = await http.call(
            "POST", self.address.graphql, {"query": document, "variables": dict(variables)}, safe=safe
        )
        body = answer.data if isinstance(answer.data, Mapping) else {}
        errors = [error for error in body.get("errors") or [] if isinstance(error, Mapping)]
        data = body.get("data")
        cost = (data.get("rateLimit") or {}).get("cost") if isinstance(data, Mapping) else None
        http.budget.record_cost("graphql", cost if isinstance(cost, int) else 1)
        if not isinstance(data, Mapping) or (errors and all(value is None for value in data.values())):
            raise self._graphql_error(http, answer, errors)
        return data, errors

    def _graphql_error(
        self, http: ForgeHttpClient, answer: ForgeResponse, errors: Sequence[Mapping[str, Any]]
    ) -> AoError:
        """Return the error for a GraphQL answer without data, by the types of its errors."""
        kinds = {str(error.get("type", "")) for error in errors}
        messages = "; ".join(" ".join(str(error.get("message", "")).split()) for error in errors[:3])[:300]
        name = http.host_text.name
        if "RATE_LIMITED" in kinds:
            until = http.budget.record_refusal(answer.headers, secondary=False, resource="graphql")
            return rate_limit_error(http.host_text, "GraphQL", until)
        if "NOT_FOUND" in kinds:
            return NotFound(
                f"{name}: {messages}",
                f"check its name, and repo in the configuration; what {http.host_text.token} may not see looks the same",
            )
        if kinds & {"FORBIDDEN", "INSUFFICIENT_SCOPES"}:
            return Denied(f"{name}: {messages}", http.host_text.sign_in)
        if kinds & {"UNPROCESSABLE", "UNPROCESSABLE_ENTITY", "INVALID"}:
            return UsageError(f"{name}: {messages}")
        return Temporary(f"{name} could not answer: {messages or 'no reason given'}", "try again later")

    async def login(self) -> str:
        """Return the login of the token, read once."""
        if self._login is None:
            data, _ = await self.graphql(VIEWER_QUERY, {})
            self._login = str(data["viewer"]["login"])
        return self._login

    def git_remote(self, repo: str) -> tuple[str, dict[str, str]]:
        """Return the URL that Git pushes to, and the environment with its credentials.

        Credentials are passed by environment because command lines are visible to other processes. Git never prompts.
        """
        origin = f"{self.address.web}/"
        settings = [("credential.helper", "")]
        if self._token is not None:
            login = self._token.basic_credentials("x-access-token")
            settings.append((f"http.{origin}.extraHeader", f"Authorization: Basic {login}"))
        else:
            settings.append((f"credential.{self.address.web}.helper", "!gh auth git-credential"))
        env = {"GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_COUNT": str(len(settings))}
        for index, (name, value) in enumerate(settings):
            env |= {f"GIT_CONFIG_KEY_{index}": name, f"GIT_CONFIG_VALUE_{index}": value}
        return f"{origin}{repo}.git", env
