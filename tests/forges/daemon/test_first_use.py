"""What somebody meets who uses a forge for the first time: wrong names and tokens, told in one line; nothing lands unchecked."""

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
from tests.forges.daemon.test_issues import boxed
from tests.forges.published import linear_types


@pytest.fixture
def box(tmp_path: Path, forge: GitHubServer) -> Iterator[Sandbox]:
    with boxed(tmp_path, forge, "polling") as sandbox:
        yield sandbox


def configured(box: Sandbox, old: str, new: str) -> None:
    file = box.repo / "agent-orchestrator.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def checks(box: Sandbox) -> dict[str, dict[str, str]]:
    return {one["name"]: one for one in box.json("doctor")["checks"]}


def test_a_pull_request_is_named_by_its_address_too(box: Sandbox, forge: GitHubServer) -> None:
    forge.push("acme/app", "theirs", {"c.txt": "c\n"}, by="rev")
    pull = forge.pull("acme/app", "theirs", "Add c", by="rev")
    other = f"{forge.url}/acme/other/pull/{pull.number}"
    assert_refused(box.ao("new", "--pr", other, check=False), 2, "not in acme/app", "-p P")
    assert_refused(box.ao("new", "--pr", "c.txt", check=False), 2, "no pull request", "its address")
    made = box.json("new", "--pr", f"{forge.url}/acme/app/pull/{pull.number}/files", "[[wait]]")
    assert made["branch"] == "theirs"


def test_a_wrong_repository_is_named_with_the_key_that_names_it(box: Sandbox) -> None:
    configured(box, "repo: acme/app", "repo: acme/nope")
    for words in (["issue", "new", "x"], ["new", "--pr", "2"], ["new", "1"]):
        assert_refused(box.ao(*words, check=False), 3, "acme/nope", "repo and apiUrl")
    assert box.sessions() == []


def test_issues_that_could_not_be_read_are_not_none(box: Sandbox, forge: GitHubServer) -> None:
    box.until(lambda: box.json("issues")["unread"] == [], "the first reading", TIMEOUT)
    assert "No issue is open" in box.ao("issues").stdout
    token = forge.token("dev")
    configured(box, f'token: "{_token(box)}"', 'token: "wrong"')
    [unread] = box.until(lambda: box.json("issues")["unread"], "the trouble", TIMEOUT)
    assert unread["project"] == "app" and "is not accepted" in unread["why"]
    shown = box.ao("issues")
    assert shown.stdout == "" and "could not be read" in shown.stderr
    configured(box, 'token: "wrong"', f'token: "{token}"')  # what is mended counts at once, whatever pause was meant
    box.until(lambda: box.json("issues")["unread"] == [], "the next reading", 10)


def _token(box: Sandbox) -> str:
    text = (box.repo / "agent-orchestrator.yaml").read_text()
    return text.partition('token: "')[2].partition('"')[0]


def test_a_variable_that_the_daemon_has_not_is_named(box: Sandbox) -> None:
    configured(box, "webhook: {secret: s3cret}", "webhook: {secretEnvVar: NOT_THERE}")
    found = checks(box)["github webhooks: app"]
    assert found["state"] == "warning" and "NOT_THERE" in found["detail"] and "ao shutdown" in found["remedy"]
    configured(box, f'token: "{_token(box)}"', 'token: "${NOT_THERE}"')
    told = box.ao("status").stderr
    assert told.count("scm.token") == 1 and "NOT_THERE" in told and "ao shutdown" in told


def test_who_cannot_be_assigned_takes_nobodys_place(box: Sandbox, forge: GitHubServer) -> None:
    made = forge.issue("acme/app", "Any", by="rev")
    box.until(lambda: box.json("issues")["issues"], "the issue", TIMEOUT)
    box.ao("issue", "assign", "1", "rev")
    assert_refused(box.ao("issue", "assign", "1", "nobody-there", check=False), 2, "nobody-there")
    assert [one.login for one in made.assignees] == ["rev"]


def test_a_person_lands_nothing_before_its_checks(box: Sandbox, forge: GitHubServer) -> None:
    box.json("new", "[[write: b.txt|one]] [[commit: one]] [[done: made]]", "--name", "one")
    now = wait_for_session(box, "one", lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
    pull = forge.find_pull("acme/app", now["pr"]["number"])
    forge.check("acme/app", pull.head_sha, "tests")
    wait_for_status(box, "one", "ci_running")
    box.ao("merge", "one", "--no-wait")
    wait_for_session(box, "one", lambda now: "checks" in (now["waitingFor"] or ""), "it to wait")
    assert box.session("one")["status"] == "merging" and not pull.merged
    forge.check("acme/app", pull.head_sha, "tests", "success")
    wait_for_session(box, "one", lambda now: now["pr"]["state"] == "merged", "it to land")
    told = box.ao("merge", "one").stdout
    assert f"/pull/{pull.number}" in told and "ao undo" not in told


def test_what_turns_red_while_it_waits_does_not_land(box: Sandbox, forge: GitHubServer) -> None:
    box.json("new", "[[write: b.txt|one]] [[commit: one]] [[done: made]] [[wait]] [[wait]]", "--name", "one")
    now = wait_for_session(box, "one", lambda now: now["pr"] and now["pr"]["state"] == "open", "a pull request")
    pull = forge.find_pull("acme/app", now["pr"]["number"])
    forge.check("acme/app", pull.head_sha, "tests")
    wait_for_status(box, "one", "ci_running")
    box.ao("merge", "one", "--no-wait")
    wait_for_session(box, "one", lambda now: "checks" in (now["waitingFor"] or ""), "it to wait")
    forge.check("acme/app", pull.head_sha, "tests", "failure")

    def refusal() -> list[str]:
        return [one["data"]["cause"] for one in box.events("one") if one["type"] == "landing-failed"]

    assert box.until(refusal, "the refusal", TIMEOUT) == ["checks"]
    assert not pull.merged


def test_an_issue_is_called_as_its_tracker_calls_it(tmp_path: Path) -> None:
    schema = tmp_path / "linear.graphql"
    schema.write_text(linear_types.sdl(published(fetch.LINEAR).read_text()))
    with LinearServer(schema=schema) as linear, Sandbox(tmp_path, "process") as box:
        team = linear.team("LIN")
        linear.issue(team, "Count to four", by="dev")
        tracker = f'{{plugin: linear, team: LIN, apiUrl: "{linear.api}", token: "{linear.token("dev")}"}}'
        box.repository(config=f"defaults: {{agent: demo}}\nprojects:\n  app: {{path: ., tracker: {tracker}}}\n")
        box.start()
        box.until(lambda: box.json("issues")["issues"], "the issue", TIMEOUT)
        assert "LIN-1  Count to four" in box.ao("issues").stdout
        assert box.ao("issue", "show", "lin-1").stdout.startswith("LIN-1 Count to four")
        assert_refused(box.ao("issue", "close", "OPS-1", check=False), 3, "OPS-1", "LIN-1")
        assert_refused(box.ao("new", "LIN-77", check=False), 3, "LIN-77", "team and apiUrl")
        assert box.json("issue", "show", "1")["state"] == "open"
