"""The GitLab host: addresses and tokens."""

from __future__ import annotations

import base64
import stat
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.errors import Denied, UsageError
from agent_orchestrator.plugins.forges.gitlab.host import GitLabHost, parse_project_address
from agent_orchestrator.plugins.forges.shared.rate_limits import RequestBudget

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No variable of the developer's, and a PATH of our own."""
    for name in ("GITLAB_TOKEN", "GITLAB_ACCESS_TOKEN", "GITLAB_HOST", "GL_HOST"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def glab(folder: Path, script: str) -> None:
    program = folder / "glab"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(
    ("config", "repo", "api", "web"),
    [
        ({"repo": "g/n"}, "g/n", "https://gitlab.com/api/v4", "https://gitlab.com"),
        ({"repo": "g/s/n"}, "g/s/n", "https://gitlab.com/api/v4", "https://gitlab.com"),
        ({"repo": "git@gitlab.com:g/s/n.git"}, "g/s/n", "https://gitlab.com/api/v4", "https://gitlab.com"),
        (
            {"repo": "https://git.example.com/g/n.git"},
            "g/n",
            "https://git.example.com/api/v4",
            "https://git.example.com",
        ),
        ({"repo": "git.example.com/g/n"}, "g/n", "https://git.example.com/api/v4", "https://git.example.com"),
        (
            {"repo": "g/n", "apiUrl": "http://host:8080/gitlab/api/v4/"},
            "g/n",
            "http://host:8080/gitlab/api/v4",
            "http://host:8080/gitlab",
        ),
        ({"repo": "g/n", "apiUrl": "https://h.example"}, "g/n", "https://h.example/api/v4", "https://h.example"),
    ],
)
def test_the_address_of_a_project_is_resolved(config: dict[str, str], repo: str, api: str, web: str) -> None:
    place = parse_project_address(config, "scm")
    assert (place.repo, place.api, place.web) == (repo, api, web)


@pytest.mark.parametrize("config", [{}, {"repo": "n"}, {"repo": "g/../n"}, {"repo": "g/n", "apiUrl": "ftp://x"}])
def test_an_invalid_project_is_refused(config: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        parse_project_address(config, "scm")


def make_host(**config: str) -> GitLabHost:
    return GitLabHost({"repo": "g/n", **config}, LocalHost(), "scm")


async def test_the_tokens_in_their_order(monkeypatch: pytest.MonkeyPatch, programs: Path) -> None:
    glab(programs, 'echo "from-glab-$5"')
    assert (await _token(make_host())) == "from-glab-gitlab.com"
    monkeypatch.setenv("GITLAB_ACCESS_TOKEN", "second")
    assert (await _token(make_host())) == "second"
    monkeypatch.setenv("GITLAB_TOKEN", "first")
    assert (await _token(make_host())) == "first"
    assert (await _token(make_host(token="given"))) == "given"


async def test_a_token_for_one_host_is_sent_to_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITLAB_TOKEN", "secret")
    own = {"apiUrl": "https://git.example.com"}
    with pytest.raises(Denied, match=r"no token for git\.example\.com"):
        await make_host(**own).http()
    monkeypatch.setenv("GITLAB_HOST", "https://git.example.com")
    assert (await _token(make_host(**own))) == "secret"
    with pytest.raises(Denied, match=r"no token for gitlab\.com"):
        await make_host().http()


async def test_without_any_token_the_remedy_is_named(programs: Path) -> None:
    glab(programs, "exit 1")
    with pytest.raises(Denied, match=r"glab auth login --hostname gitlab\.com, or set GITLAB_TOKEN"):
        await make_host().http()


async def _token(host: GitLabHost) -> str:
    await host.http()
    _, env = host.git_remote("g/n")
    header = next(value for key, value in env.items() if value.startswith("Authorization: Basic "))
    name, _, token = base64.b64decode(header.rpartition(" ")[2]).decode().partition(":")
    assert name == "oauth2"
    return token


def test_git_gets_the_token_in_its_environment_for_that_host_alone() -> None:
    url, env = make_host(token="glpat-1", apiUrl="https://git.example.com/api/v4").git_remote("g/n")
    assert url == "https://git.example.com/g/n.git"
    assert "glpat-1" not in " ".join([url, *env.values()])
    assert env["GIT_CONFIG_KEY_1"] == "http.https://git.example.com/.extraHeader"
    assert env["GIT_TERMINAL_PROMPT"] == "0"


def test_unchanged_responses_count_as_our_own_requests() -> None:
    """GitLab counts it, GitHub does not."""
    budget = RequestBudget(lambda: 1_000.0)
    for left in (100, 99, 98):
        headers = {"ratelimit-limit": "2000", "ratelimit-remaining": str(left), "ratelimit-reset": "1060"}
        budget.record(headers, 304)
    [row] = budget.rows()
    assert (row.remaining, row.used_by_others) == (98, 0)
