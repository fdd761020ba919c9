"""The Jira test server's answers compared with Atlassian's description of REST 3.

The description on npm is older than `search/jql`: the issues of that answer are checked as issues, and its other two fields here.
For REST 2 no description with answers is published.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from agent_orchestrator.errors import NotFound, UsageError
from agent_orchestrator.protocols.forge import IssueChange
from tests.forges import fetch
from tests.forges.conftest import published
from tests.forges.plugins.trackers import JiraBench

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="session")
def description() -> Any:
    pytest.importorskip("jsonschema", reason="jsonschema is not installed: make test-forges")
    from tests.forges.published.openapi import OpenApiDescription

    return OpenApiDescription(published(fetch.JIRA))


async def test_every_answer_matches_the_description(description: Any) -> None:
    bench = JiraBench(3)
    with bench.server as server:
        plugin = bench.plugin()
        new_issue = await plugin.create("New", "a `b`\n\n```py\nx\n```", ["bug"])
        server.attach(bench.project.issues[0], "log.txt")
        for state in ("in_progress", "in_review", "closed", "open"):
            await plugin.change(
                new_issue.id, IssueChange(state=state, assignee="rev", add_labels=("x",), title="Newer")
            )
        await plugin.comment(new_issue.id, "hello", "k")
        await plugin.comment(new_issue.id, "hello", "k")
        await plugin.get(new_issue.id)
        await plugin.list(assignee="@me")
        with pytest.raises(NotFound):
            await plugin.get("APP-99")
        answers = list(server.answer_log)
    problems = []
    for method, path, status, body in answers:
        if path.endswith("/search/jql"):
            assert set(body) <= {"issues", "isLast", "nextPageToken"}
            for issue in body["issues"]:
                problems += description.problems("GET", f"/rest/api/3/issue/{issue['key']}", 200, issue)
        else:
            problems += description.problems(method, path, status, body)
    requests = {
        (method, re.sub(r"APP-\d+", "KEY", path.removeprefix("/rest/api/3/"))) for method, path, _, _ in answers
    }
    assert problems == []
    assert requests == {
        ("POST", "issue"),
        ("PUT", "issue/KEY"),
        ("GET", "issue/KEY"),
        ("PUT", "issue/KEY/assignee"),
        ("GET", "issue/KEY/transitions"),
        ("POST", "issue/KEY/transitions"),
        ("GET", "issue/KEY/comment"),
        ("POST", "comment/list"),
        ("POST", "issue/KEY/comment"),
        ("GET", "user/assignable/search"),
        ("GET", "myself"),
        ("POST", "search/jql"),
    }


async def test_a_sent_comment_matches_the_description(description: Any) -> None:
    """The body and properties of a comment, as sent, match the description of a comment."""
    bench = JiraBench(3)
    with bench.server:
        bench.issue("x")
        await bench.plugin().comment("1", "hello", "k")
        comment = bench.project.issues[0].comments[0]
    schema = {"$ref": "#/components/schemas/Comment"}
    sent = {"body": comment.body, "properties": comment.properties}
    assert list(description._validator(json.dumps(schema)).iter_errors(sent)) == []
    assert comment.properties == [{"key": "ao.said", "value": {"key": "k"}}]


@pytest.mark.parametrize("api", [2, 3])
async def test_a_workflow_without_a_direct_transition_is_followed_step_by_step(api: int) -> None:
    transitions = {
        "To Do": ["In Progress"],
        "In Progress": ["To Do", "In Review"],
        "In Review": ["In Progress", "Done"],
    }
    bench = JiraBench(api, transitions=transitions)
    with bench.server:
        issue = bench.issue("x")
        await bench.plugin().change("1", IssueChange(state="closed"))
        assert issue.status.name == "Done"
        with pytest.raises(UsageError, match="no transition leads from Done to in_progress"):
            await bench.plugin().change("1", IssueChange(state="in_progress"))


async def test_in_review_is_in_progress_in_a_project_without_a_review_state() -> None:
    statuses = (("Backlog", "new"), ("Doing", "indeterminate"), ("Finished", "done"))
    bench = JiraBench(3, statuses=statuses)
    with bench.server:
        issue = bench.issue("x")
        for _ in range(2):
            await bench.plugin().change("1", IssueChange(state="in_review"))
            assert issue.status.name == "Doing"


async def test_errors_of_jira_are_passed_on() -> None:
    bench = JiraBench(3)
    with bench.server:
        with pytest.raises(UsageError, match="Specify a valid issue type"):
            await bench.plugin(issueType="Nothing").create("x")
        with pytest.raises(UsageError, match="no label of Jira"):
            await bench.plugin().create("x", labels=["a b"])
        with pytest.raises(NotFound, match="No project could be found"):
            await bench.plugin(project="NONE").change("NONE-1", IssueChange(assignee="rev"))


@pytest.mark.parametrize("label", ['a"b', "back\\slash", "x OR project = Y", "ä"])
async def test_labels_are_quoted_in_jql(label: str) -> None:
    bench = JiraBench(3)
    with bench.server:
        bench.issue("x", labels=(label,))
        bench.issue("y", labels=("other",))
        assert [issue.title for issue in await bench.plugin().list(labels=[label])] == ["x"]


@pytest.mark.parametrize("api", [2, 3])
async def test_rights_of_people_are_rarely_requested_and_unknown_if_refused(api: int) -> None:
    bench = JiraBench(api)
    with bench.server as server:
        issue = bench.issue("x", by="eve")
        for number in range(30):
            server.comment(issue, "me", by=f"someone{number}")
        bench.comment(issue, "me too", by="rev")
        plugin = bench.plugin()
        first = await plugin.get("1")
        assert {comment.author.write_access for comment in first.comments} == {"no", "unknown"}
        assert (await plugin.get("1")).comments[-1].author.write_access == "yes"
        request_count = len(server.ledger.requests)
        await plugin.get("1")
        assert not [request for request in server.ledger.requests[request_count:] if "assignable" in request.path]
        server.fail(403, path="assignable", next=99)
        unknown_access = await bench.plugin().get("1")
        assert {
            unknown_access.author.write_access,
            *(comment.author.write_access for comment in unknown_access.comments),
        } == {"unknown"}


async def test_issues_of_another_project_are_not_found() -> None:
    bench = JiraBench(3)
    with bench.server as server:
        issue = bench.issue("x")
        other = server.project("OTH")
        with pytest.raises(NotFound, match="OTH-1 is no issue of the project APP"):
            await bench.plugin().get("https://acme.atlassian.net/browse/OTH-1")
        assert bench.plugin().repo == "APP"
        bench.project.issues.remove(issue)
        issue.former, issue.project = "APP-1", other
        other.issues.append(issue)
        with pytest.raises(NotFound, match="moved to another project, as OTH-1"):
            await bench.plugin().get("APP-1")


async def test_a_user_with_a_hidden_address_is_found_by_the_exact_address() -> None:
    bench = JiraBench(3)
    with bench.server as server:
        issue = bench.issue("x")
        server.user("rev").has_hidden_email = True
        await bench.plugin().change("1", IssueChange(assignee="rev@acme.example"))
        assert issue.assignee is server.user("rev")
        with pytest.raises(UsageError, match="nobody"):
            await bench.plugin().change("1", IssueChange(assignee="re"))


async def test_login_works_with_email_and_token_or_with_a_token_alone() -> None:
    for api, config in ((3, {"email": "dev@acme.example"}), (2, {}), (2, {"email": "dev"})):
        bench = JiraBench(api)
        with bench.server:
            bench.issue("x")
            assert (await bench.plugin(**config).get("1")).title == "x"


async def test_pages_smaller_than_requested_lose_nothing() -> None:
    for api in (2, 3):
        bench = JiraBench(api)
        bench.server.page_size = 7
        with bench.server:
            issue = bench.issue("x")
            for number in range(30):
                bench.issue(f"n{number}")
                bench.comment(issue, f"c{number}", by="rev")
            assert len(await bench.plugin().list()) == 31
            assert len((await bench.plugin().get("1")).comments) == 30
