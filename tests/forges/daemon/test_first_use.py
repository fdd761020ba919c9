"""First use of a forge: wrong names and tokens are reported in one line; nothing is merged before its checks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.linear import LinearServer
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused
from tests.acceptance.session_states import TIMEOUT, wait_for_session, wait_for_status
from tests.forges import fetch
from tests.forges.conftest import published
from tests.forges.daemon.test_issues import issue_sandbox
from tests.forges.published import linear_types


@pytest.fixture
def box(tmp_path: Path, forge: GitHubServer) -> Iterator[Sandbox]:
    with issue_sandbox(tmp_path, forge, "polling") as sandbox:
        yield sandbox


def edit_config(box: Sandbox, old: str, new: str) -> None:
    file = box.repo / "agent-orchestrator.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def doctor_checks(box: Sandbox) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in box.json("doctor")["checks"]}


def test_a_pull_request_can_be_given_by_its_url(box: Sandbox, forge: GitHubServer) -> None:
    forge.push("acme/app", "theirs", {"c.txt": "c\n"}, by="rev")
    pull = forge.pull("acme/app", "theirs", "Add c", by="rev")
    other = f"{forge.url}/acme/other/pull/{pull.number}"
    assert_refused(box.ao("new", "--pr", other, check=False), 2, "not in acme/app", "-p P")
    assert_refused(box.ao("new", "--pr", "c.txt", check=False), 2, "no pull request", "its address")
    session = box.json("new", "--pr", f"{forge.url}/acme/app/pull/{pull.number}/files", "[[wait]]")
    assert session["branch"] == "theirs"


def test_an_unknown_repository_is_refused_with_the_configuration_keys_to_check(box: Sandbox) -> None:
    edit_config(box, "repo: acme/app", "repo: acme/nope")
    for words in (["issue", "new", "x"], ["new", "--pr", "2"], ["new", "1"]):
        assert_refused(box.ao(*words, check=False), 3, "acme/nope", "repo and apiUrl")
    assert box.sessions() == []


def test_unreadable_issues_are_not_shown_as_no_issues(box: Sandbox, forge: GitHubServer) -> None:
    box.wait_until(lambda: box.json("issues")["unread"] == [], "the first reading", TIMEOUT)
    assert "No issue is open" in box.ao("issues").stdout
    token = forge.token("dev")
    edit_config(box, f'token: "{_configured_token(box)}"', 'token: "wrong"')
    [unread] = box.wait_until(lambda: box.json("issues")["unread"], "the trouble", TIMEOUT)
    assert unread["project"] == "app" and "is not accepted" in unread["why"]
    output = box.ao("issues")
    assert output.stdout == "" and "could not be read" in output.stderr
    edit_config(box, 'token: "wrong"', f'token: "{token}"')  # what is mended counts at once, whatever pause was meant
    box.wait_until(lambda: box.json("issues")["unread"] == [], "the next reading", 10)


def _configured_token(box: Sandbox) -> str:
    text = (box.repo / "agent-orchestrator.yaml").read_text()
    return text.partition('token: "')[2].partition('"')[0]


def test_an_environment_variable_missing_in_the_daemon_is_named(box: Sandbox) -> None:
    edit_config(box, "webhook: {secret: s3cret}", "webhook: {secretEnvVar: NOT_THERE}")
    webhook_check = doctor_checks(box)["github webhooks: app"]
    assert (
        webhook_check["state"] == "warning"
        and "NOT_THERE" in webhook_check["detail"]
        and "ao shutdown" in webhook_check["remedy"]
    )
    edit_config(box, f'token: "{_configured_token(box)}"', 'token: "${NOT_THERE}"')
    error_output = box.ao("status").stderr
    assert error_output.count("scm.token") == 1 and "NOT_THERE" in error_output and "ao shutdown" in error_output


def test_assigning_an_unknown_person_leaves_the_assignees_unchanged(box: Sandbox, forge: GitHubServer) -> None:
    issue = forge.issue("acme/app", "Any", by="rev")
    box.wait_until(lambda: box.json("issues")["issues"], "the issue", TIMEOUT)
    box.ao("issue", "assign", "1", "rev")
    assert_refused(box.ao("issue", "assign", "1", "nobody-there", check=False), 2, "nobody-there")
    assert [user.login for user in issue.assignees] == ["rev"]


def test_a_merge_waits_for_running_checks(box: Sandbox, forge: GitHubServer) -> None:
    box.json("new", "[[write: b.txt|one]] [[commit: one]] [[done: made]]", "--name", "one")
    now = wait_for_session(box, "one", lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
    pull = forge.find_pull("acme/app", now["pr"]["number"])
    forge.check("acme/app", pull.head_sha, "tests")
    wait_for_status(box, "one", "ci_running")
    box.ao("merge", "one", "--no-wait")
    wait_for_session(box, "one", lambda now: "checks" in (now["waitingFor"] or ""), "it to wait")
    assert box.session("one")["status"] == "merging" and not pull.merged
    forge.check("acme/app", pull.head_sha, "tests", "success")
    wait_for_session(box, "one", lambda now: now["pr"]["state"] == "merged", "it to be merged")
    output = box.ao("merge", "one").stdout
    assert f"/pull/{pull.number}" in output and "ao undo" not in output


def test_a_check_that_fails_while_the_merge_waits_cancels_the_merge(box: Sandbox, forge: GitHubServer) -> None:
    box.json("new", "[[write: b.txt|one]] [[commit: one]] [[done: made]] [[wait]] [[wait]]", "--name", "one")
    now = wait_for_session(box, "one", lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
    pull = forge.find_pull("acme/app", now["pr"]["number"])
    forge.check("acme/app", pull.head_sha, "tests")
    wait_for_status(box, "one", "ci_running")
    box.ao("merge", "one", "--no-wait")
    wait_for_session(box, "one", lambda now: "checks" in (now["waitingFor"] or ""), "it to wait")
    forge.check("acme/app", pull.head_sha, "tests", "failure")

    def refusal() -> list[str]:
        return [event["data"]["cause"] for event in box.events("one") if event["type"] == "landing-failed"]

    assert box.wait_until(refusal, "the refusal", TIMEOUT) == ["checks"]
    assert not pull.merged


def test_issues_are_shown_and_given_by_their_trackers_keys(tmp_path: Path) -> None:
    schema = tmp_path / "linear.graphql"
    schema.write_text(linear_types.sdl(published(fetch.LINEAR).read_text()))
    with LinearServer(schema=schema) as linear, Sandbox(tmp_path, "process") as box:
        team = linear.team("LIN")
        linear.issue(team, "Count to four", by="dev")
        tracker = f'{{plugin: linear, team: LIN, apiUrl: "{linear.api}", token: "{linear.token("dev")}"}}'
        box.repository(config=f"defaults: {{agent: demo}}\nprojects:\n  app: {{path: ., tracker: {tracker}}}\n")
        box.start()
        box.wait_until(lambda: box.json("issues")["issues"], "the issue", TIMEOUT)
        assert "LIN-1  Count to four" in box.ao("issues").stdout
        assert box.ao("issue", "show", "lin-1").stdout.startswith("LIN-1 Count to four")
        assert_refused(box.ao("issue", "close", "OPS-1", check=False), 3, "OPS-1", "LIN-1")
        assert_refused(box.ao("new", "LIN-77", check=False), 3, "LIN-77", "team and apiUrl")
        assert box.json("issue", "show", "1")["state"] == "open"
