"""What `ao doctor` says about tokens: the account, the scopes that are missing, and what they are needed for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.gitlab import GitLabServer
from agent_orchestrator.testing.jira import JiraServer
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.session_states import TIMEOUT
from tests.forges import fetch
from tests.forges.conftest import published
from tests.forges.plugins.trackers import LinearBench
from tests.forges.published.linear_types import write_schema

BOTH = """
projects:
  app:
    path: .
    repo: acme/app
    scm: &at {{plugin: {kind}, apiUrl: "{url}", token: "{token}"}}
    tracker: *at
"""
TRACKER = """
projects:
  app:
    path: .
    tracker: {{plugin: {kind}, {options}, token: "{token}"}}
"""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config="projects: {app: {path: .}}")
        sandbox.start()
        sandbox.ao("add-project", str(sandbox.repo))
        yield sandbox


def doctor_finding(box: Sandbox, config: str, name: str, state: str, *words: str) -> str:
    """Wait until the doctor's check of that name has the state and contains all the words, with this configuration; return its text."""
    (box.repo / "agent-orchestrator.yaml").write_text(config)

    def matching_check() -> Any:
        checks = {check["name"]: check for check in box.request("GET", "/api/doctor")["checks"]}
        check = checks.get(name) or {}
        text = f"{check.get('detail')} | {check.get('remedy')}"
        return text if check.get("state") == state and all(word in text for word in words) else None

    return str(box.wait_until(matching_check, f"{name} {state}: {words}", TIMEOUT / 3))


def in_three_days(style: str) -> str:
    return (datetime.now(UTC) + timedelta(days=3)).strftime(style)


def test_tokens_of_github(box: Sandbox, schema: Path) -> None:
    everything = frozenset({"pulls", "actions", "issues"})
    with GitHubServer(schema=schema) as forge:
        forge.repository("acme/app", {"a.txt": "1\n"}, people={"dev": "write", "rev": "read"})

        def config(**token: Any) -> str:
            who = token.pop("who", "dev")
            return BOTH.format(kind="github", url=forge.url, token=forge.token(who, **token))

        doctor_finding(box, config(), "github: app", "ok", "acme/app, as dev, scopes repo, read:org, workflow")
        doctor_finding(box, config(), "github issues: app", "ok", "as dev, scopes repo")
        widen = "gh auth refresh --hostname 127.0.0.1 --scopes workflow"
        narrow = config(scopes=("repo",))
        doctor_finding(box, narrow, "github: app", "warning", "lacks the scope workflow", ".github/workflows", widen)
        doctor_finding(box, narrow, "github issues: app", "ok", "as dev, scopes repo")
        wrong_scopes = config(scopes=("read:org",))
        doctor_finding(
            box,
            wrong_scopes,
            "github: app",
            "failed",
            "scopes read:org",
            "lacks the scope public_repo",
            "open pull requests",
        )
        doctor_finding(
            box,
            wrong_scopes,
            "github issues: app",
            "failed",
            "lacks the scope public_repo, needed to read and change issues",
        )
        fine = config(permissions=everything)
        doctor_finding(box, fine, "github: app", "ok", "without scopes, so tried: reading pulls, actions/runs")
        doctor_finding(box, fine, "github issues: app", "ok", "without scopes, so tried: reading issues")
        blind = config(permissions=everything - {"actions"})
        doctor_finding(
            box, blind, "github: app", "warning", "actions=read", "needed to read checks", "give the token that"
        )
        doctor_finding(box, config(permissions=everything - {"pulls"}), "github: app", "failed", "pulls=read")
        doctor_finding(box, config(who="rev"), "github: app", "failed", "rev may not write to acme/app", "scm.fork")
        doctor_finding(
            box,
            config(ends=in_three_days("%Y-%m-%d %H:%M:%S UTC")),
            "github: app",
            "warning",
            "ends on",
            "make another",
        )
        old = config(expired=True)
        for name in ("github: app", "github issues: app"):
            line = doctor_finding(box, old, name, "failed", "is not accepted by GitHub", "gh auth login")
            assert "\n" not in line
        assert box.ao("doctor", check=False).returncode == 1


def test_tokens_of_gitlab(box: Sandbox) -> None:
    with GitLabServer() as forge:
        forge.repository("acme/app", {"a.txt": "1\n"}, people={"dev": "write", "rev": "read"})

        def config(**token: Any) -> str:
            who = token.pop("who", "dev")
            return BOTH.format(kind="gitlab", url=forge.url, token=forge.token(who, **token))

        doctor_finding(box, config(), "gitlab: app", "ok", "acme/app, as dev, scopes api")
        doctor_finding(box, config(), "gitlab issues: app", "ok", "as dev, scopes api")
        for scopes in (("read_api",), ("read_repository",)):
            wrong = config(scopes=scopes)
            doctor_finding(
                box,
                wrong,
                "gitlab: app",
                "failed",
                f"scopes {scopes[0]}",
                "the scope api, needed to read and open merge",
            )
            doctor_finding(
                box, wrong, "gitlab issues: app", "failed", "needed to read and change issues", "make a token"
            )
        doctor_finding(
            box, config(who="rev"), "gitlab: app", "failed", "rev may not write to acme/app", "role of a developer"
        )
        doctor_finding(box, config(ends=in_three_days("%Y-%m-%d")), "gitlab: app", "warning", "ends on", "make another")
        for name in ("gitlab: app", "gitlab issues: app"):
            doctor_finding(box, config(expired=True), name, "failed", "is not accepted by GitLab", "glab auth login")


def test_tokens_of_linear(box: Sandbox) -> None:
    pytest.importorskip("graphql", reason="graphql-core is not installed: make test-forges")
    bench = LinearBench(write_schema(published(fetch.LINEAR)))
    with bench.server as linear:

        def config(token: str, team: str = "LIN") -> str:
            return TRACKER.format(kind="linear", options=f'team: {team}, apiUrl: "{linear.api}"', token=token)

        doctor_finding(box, config(linear.token("dev")), "linear issues: app", "ok", "as dev", "team LIN")
        doctor_finding(
            box, config(linear.token("dev"), "NO"), "linear issues: app", "failed", "no team NO", "team: LIN"
        )
        doctor_finding(
            box, config("lin_api_wrong"), "linear issues: app", "failed", "is not accepted", "LINEAR_API_KEY"
        )


def test_tokens_of_jira(box: Sandbox) -> None:
    with JiraServer() as jira:
        jira.project("APP")

        def config(token: str, project: str = "APP", version: int = 3) -> str:
            email = "email: dev@acme.example, " if version == 3 else ""
            options = f'{email}project: {project}, url: "{jira.url}", api: {version}'
            return TRACKER.format(kind="jira", options=options, token=token)

        good = config(jira.token("dev"))
        doctor_finding(box, good, "jira issues: app", "ok", "as Dev", "project APP")
        doctor_finding(box, config(jira.token("dev"), version=2), "jira issues: app", "ok", "as Dev", "project APP")
        jira.forbidden = {"ADD_COMMENTS"}
        doctor_finding(
            box, good, "jira issues: app", "warning", "ADD_COMMENTS, needed to link pull requests", "have it granted"
        )
        jira.forbidden = {"BROWSE_PROJECTS"}
        doctor_finding(box, good, "jira issues: app", "failed", "BROWSE_PROJECTS, needed to read issues")
        doctor_finding(box, config(jira.token("dev"), "NO"), "jira issues: app", "failed", "NO")
        doctor_finding(box, config("wrong"), "jira issues: app", "failed", "is not accepted", "JIRA_API_TOKEN")
