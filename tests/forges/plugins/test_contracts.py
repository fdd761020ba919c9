"""Our forge and tracker plugins pass the contract tests for third-party plugins, each on its test server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from agent_orchestrator.protocols.forge import SCM, PullRequestState, Tracker
from agent_orchestrator.testing.contracts.scm import Ask, Review, SCMContract
from agent_orchestrator.testing.contracts.tracker import TrackerContract
from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.gitlab import GitLabServer
from tests.forges import fetch
from tests.forges.conftest import published
from tests.forges.plugins import github, gitlab
from tests.forges.plugins.trackers import JiraBench, LinearBench
from tests.forges.published.linear_types import write_schema

FILES = {"a.txt": "1\n2\n3\n"}


@pytest.fixture
def gitlab_forge() -> Iterator[GitLabServer]:
    with GitLabServer() as server:
        yield server


class TestGitHub(SCMContract):
    @pytest.fixture
    def repo(self, forge: GitHubServer) -> Any:
        return forge.repository("acme/app", FILES, people={"dev": "write", "rev": "write"})

    @pytest.fixture
    def scm(self, forge: GitHubServer, repo: Any) -> SCM:  # noqa: ARG002 - it must be there
        return github.scm(forge)

    @pytest.fixture
    def restarted(self, forge: GitHubServer) -> SCM:
        return github.scm(forge)

    @pytest.fixture
    def ask(self, forge: GitHubServer, repo: Any) -> Ask:
        def ask(pull: PullRequestState, path: str, line: int, text: str) -> None:
            forge.thread(repo.issues[pull.number], path, line, text, by="rev", association="MEMBER")

        return ask

    @pytest.fixture
    def review(self, forge: GitHubServer, repo: Any) -> Review:
        def review(pull: PullRequestState, verdict: str, words: str) -> None:
            kind = {"approved": "APPROVE", "changes_requested": "REQUEST_CHANGES"}[verdict]
            forge.review(repo.issues[pull.number], kind, words, by="rev", association="MEMBER")

        return review


class TestGitLab(SCMContract):
    @pytest.fixture
    def repo(self, gitlab_forge: GitLabServer) -> Any:
        return gitlab_forge.repository("acme/app", FILES, people={"dev": "maintainer", "rev": "developer"})

    @pytest.fixture
    def scm(self, gitlab_forge: GitLabServer, repo: Any) -> SCM:  # noqa: ARG002 - it must be there
        return gitlab.scm(gitlab_forge)

    @pytest.fixture
    def restarted(self, gitlab_forge: GitLabServer) -> SCM:
        return gitlab.scm(gitlab_forge)

    @pytest.fixture
    def ask(self, gitlab_forge: GitLabServer, repo: Any) -> Ask:
        def ask(pull: PullRequestState, path: str, line: int, text: str) -> None:
            gitlab_forge.thread(gitlab_forge.find_pull(repo, pull.number), path, line, text, by="rev")

        return ask

    @pytest.fixture
    def review(self, gitlab_forge: GitLabServer, repo: Any) -> Review:
        def review(pull: PullRequestState, verdict: str, words: str) -> None:
            kind = {"approved": "APPROVE", "changes_requested": "REQUEST_CHANGES"}[verdict]
            gitlab_forge.review(gitlab_forge.find_pull(repo, pull.number), kind, words, by="rev")

        return review


class TestGitHubIssues(TrackerContract):
    @pytest.fixture
    def tracker(self, forge: GitHubServer) -> Tracker:
        forge.repository("acme/app", people={"dev": "write"})
        return github.tracker(forge)

    @pytest.fixture
    def restarted(self, forge: GitHubServer) -> Tracker:
        return github.tracker(forge)


class TestGitLabIssues(TrackerContract):
    @pytest.fixture
    def tracker(self, gitlab_forge: GitLabServer) -> Tracker:
        gitlab_forge.repository("acme/app", people={"dev": "developer"})
        return gitlab.tracker(gitlab_forge)

    @pytest.fixture
    def restarted(self, gitlab_forge: GitLabServer) -> Tracker:
        return gitlab.tracker(gitlab_forge)


class TestLinear(TrackerContract):
    @pytest.fixture
    def bench(self) -> Iterator[LinearBench]:
        pytest.importorskip("graphql", reason="graphql-core is not installed: make test-forges")
        bench = LinearBench(write_schema(published(fetch.LINEAR)), time.time)
        with bench.server:
            yield bench

    @pytest.fixture
    def tracker(self, bench: LinearBench) -> Tracker:
        return bench.plugin()

    @pytest.fixture
    def restarted(self, bench: LinearBench) -> Tracker:
        return bench.plugin()


@pytest.mark.parametrize("api", [2, 3])
class TestJira(TrackerContract):
    @pytest.fixture
    def bench(self, api: int) -> Iterator[JiraBench]:
        bench = JiraBench(api)
        with bench.server:
            yield bench

    @pytest.fixture
    def tracker(self, bench: JiraBench) -> Tracker:
        return bench.plugin()

    @pytest.fixture
    def restarted(self, bench: JiraBench) -> Tracker:
        return bench.plugin()
