"""The GitHub host: addresses, tokens, and marks in our comments."""

from __future__ import annotations

import base64
import os
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.errors import Denied, UsageError
from agent_orchestrator.plugins.forges.github.host import GitHubHost, parse_repository_address
from agent_orchestrator.plugins.forges.shared import tokens
from agent_orchestrator.plugins.forges.shared.comment_marks import has_mark, hidden_mark, split_mark, with_mark

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_tokens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No variable of the developer's, and a PATH of our own."""
    for name in ("GITHUB_TOKEN", "GH_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return programs


def gh(programs: Path, script: str) -> None:
    program = programs / "gh"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(
    ("repo", "api", "graphql", "web"),
    [
        ("o/n", "https://api.github.com", "https://api.github.com/graphql", "https://github.com"),
        (
            "https://github.com/o/n.git",
            "https://api.github.com",
            "https://api.github.com/graphql",
            "https://github.com",
        ),
        ("git@github.com:o/n.git", "https://api.github.com", "https://api.github.com/graphql", "https://github.com"),
        (
            "git@git.example.com:o/n.git",
            "https://git.example.com/api/v3",
            "https://git.example.com/api/graphql",
            "https://git.example.com",
        ),
        (
            "git.example.com/o/n",
            "https://git.example.com/api/v3",
            "https://git.example.com/api/graphql",
            "https://git.example.com",
        ),
        ("corp.ghe.com/o/n", "https://api.corp.ghe.com", "https://api.corp.ghe.com/graphql", "https://corp.ghe.com"),
    ],
)
def test_a_repository_may_be_written_in_many_ways(repo: str, api: str, graphql: str, web: str) -> None:
    place = parse_repository_address({"repo": repo}, "scm")
    assert (place.repo, place.api, place.graphql, place.web) == ("o/n", api, graphql, web)


def test_the_api_address_determines_the_other_addresses() -> None:
    for given_url in ("http://127.0.0.1:8080", "http://127.0.0.1:8080/api/v3/"):
        place = parse_repository_address({"repo": "o/n", "apiUrl": given_url}, "scm")
        assert place.api == "http://127.0.0.1:8080/api/v3"
        assert place.graphql == "http://127.0.0.1:8080/api/graphql"
        assert place.web == "http://127.0.0.1:8080"


@pytest.mark.parametrize("repo", ["", "n", "o/n/x", "o/..", "-o/n", "o n/x"])
def test_an_invalid_repository_is_refused_with_a_remedy(repo: str) -> None:
    with pytest.raises(UsageError, match="repo: owner/name"):
        parse_repository_address({"repo": repo}, "scm")


def test_an_invalid_address_is_refused() -> None:
    with pytest.raises(UsageError, match="apiUrl"):
        parse_repository_address({"repo": "o/n", "apiUrl": "git.example.com"}, "scm")


async def test_the_configurations_token_goes_first_then_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GH_TOKEN", "second")
    assert _source(GitHubHost({"repo": "o/n"}, LocalHost(), "scm")) == "GH_TOKEN"
    monkeypatch.setenv("GITHUB_TOKEN", "first")
    assert _source(GitHubHost({"repo": "o/n"}, LocalHost(), "scm")) == "GITHUB_TOKEN"
    assert _source(GitHubHost({"repo": "o/n", "token": "mine"}, LocalHost(), "scm")) == "scm.token"


def _source(host: GitHubHost) -> str | None:
    return host.token.source if host.token else None


def test_a_token_for_github_com_is_sent_to_no_other_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    other = {"repo": "git.example.com/o/n"}
    assert _source(GitHubHost(other, LocalHost(), "scm")) is None
    monkeypatch.setenv("GH_ENTERPRISE_TOKEN", "theirs")
    assert _source(GitHubHost(other, LocalHost(), "scm")) == "GH_ENTERPRISE_TOKEN"


async def test_gh_is_asked_for_that_host(no_tokens: Path) -> None:
    gh(no_tokens, '[ "$*" = "auth token --hostname git.example.com" ] && echo gho_fromgh')
    host = GitHubHost({"repo": "git.example.com/o/n"}, LocalHost(), "scm")
    await host.http()
    assert host.token == tokens.ForgeToken("gho_fromgh", "gh auth token")


@pytest.mark.parametrize("script", ["exit 1", "echo", "echo not signed in", None])
async def test_without_a_token_the_error_has_a_remedy(no_tokens: Path, script: str | None) -> None:
    if script is not None:
        gh(no_tokens, script)
    with pytest.raises(Denied, match=r"gh auth login --hostname github\.com, or set GITHUB_TOKEN"):
        await GitHubHost({"repo": "o/n"}, LocalHost(), "scm").http()


def test_a_token_is_never_shown() -> None:
    token = tokens.ForgeToken("gho_secret", "GITHUB_TOKEN")
    assert "gho_secret" not in repr(token) + str(token) + f"{token}" + token.digest


def test_an_invalid_token_is_refused() -> None:
    with pytest.raises(UsageError, match=r"tracker\.token is no token"):
        tokens.token_from_config("two words", "tracker.token")


def test_git_is_given_the_token_by_its_environment_alone_and_for_that_host() -> None:
    host = GitHubHost({"repo": "git.example.com/o/n", "token": "gho_secret"}, LocalHost(), "scm")
    url, env = host.git_remote("o/n")
    assert url == "https://git.example.com/o/n.git"
    settings = {env[f"GIT_CONFIG_KEY_{i}"]: env[f"GIT_CONFIG_VALUE_{i}"] for i in range(int(env["GIT_CONFIG_COUNT"]))}
    header = settings["http.https://git.example.com/.extraHeader"]
    assert base64.b64decode(header.rpartition(" ")[2]) == b"x-access-token:gho_secret"
    assert settings["credential.helper"] == ""
    assert env["GIT_TERMINAL_PROMPT"] == "0"


def test_without_a_known_token_git_asks_gh_itself(no_tokens: Path) -> None:
    gh(no_tokens, '[ "$1 $2" = "auth git-credential" ] && printf "username=x\\npassword=gho_fromgh\\n"')
    _, env = GitHubHost({"repo": "o/n"}, LocalHost(), "scm").git_remote("o/n")

    def git_credential(host: str) -> str:
        done = subprocess.run(
            ["git", "credential", "fill"],
            input=f"protocol=https\nhost={host}\npath=o/n.git\n\n",
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    assert "password=gho_fromgh" in git_credential("github.com")
    assert "gho_fromgh" not in git_credential("example.com")


@given(st.text(max_size=60).filter(bool), st.text(max_size=80))
def test_a_marks_key_comes_back_whatever_it_is(key: str, text: str) -> None:
    try:
        key.encode()
    except UnicodeEncodeError:
        return
    marked = with_mark(text, key)
    assert split_mark(marked)[1] == key
    assert hidden_mark(key).count("-->") == 1
    assert "\n" not in hidden_mark(key)


def test_a_quoted_mark_is_not_ours_and_a_long_text_fits() -> None:
    marked = with_mark(f"they said {hidden_mark('other')}\n> {hidden_mark('other')}", "mine")
    assert has_mark(marked, "mine")
    assert not has_mark(marked, "other")
    assert len(with_mark("x" * 1_000_000, "mine")) < 65_536
    assert has_mark(with_mark("x" * 1_000_000, "mine"), "mine")


@pytest.mark.parametrize("body", ["hello", "<!-- ao: -->", "<!-- ao:x --> and more", ""])
def test_text_without_a_mark_stays_unchanged(body: str) -> None:
    assert split_mark(body) == (body, "")


async def test_a_new_login_needs_no_restart_of_the_daemon(no_tokens: Path) -> None:
    gh(no_tokens, "echo gho_old")
    host = GitHubHost({"repo": "git.example.com/o/n"}, LocalHost(), "scm")
    first = await host.http()
    gh(no_tokens, "echo gho_new")
    assert await host.http() is first
    first.is_token_rejected = True
    assert await host.http() is not first
    assert host.token == tokens.ForgeToken("gho_new", "gh auth token")
