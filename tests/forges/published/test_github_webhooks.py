"""Every webhook of the test forge matches GitHub's published schemas, is signed, and is delivered."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.github import GitHubServer, merges, pulls
from tests.forges import fetch
from tests.forges.client import ForgeClient
from tests.forges.conftest import published
from tests.forges.published.test_github_rest import play_pull_request

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: make test-forges")


class Schemas:
    def __init__(self, path: Path) -> None:
        self._definitions = json.loads(path.read_text())["definitions"]

    def problems(self, event: str, payload: Any) -> list[str]:
        action = payload.get("action", "event")
        name = f"{event}${action}"
        if name not in self._definitions:
            return [f"there is no {event} with the action {action}"]
        schema = {"$ref": f"#/definitions/{name}", "definitions": self._definitions}
        errors = jsonschema.Draft7Validator(schema).iter_errors(payload)
        return [f"{name}: {'/'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in errors]


@pytest.fixture(scope="module")
def schemas() -> Schemas:
    return Schemas(published(fetch.WEBHOOKS))


class Inbox(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        self.deliveries: list[tuple[dict[str, str], bytes]] = []
        super().__init__(("127.0.0.1", 0), _Post)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/hook"


class _Post(BaseHTTPRequestHandler):
    server: Inbox

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.deliveries.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(202)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the base class
        pass


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with Inbox() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


def test_all_webhooks_match_the_published_schemas(schemas: Schemas) -> None:
    with GitHubServer() as forge:
        play_pull_request(forge)
        play_rare_events(forge)
        deliveries = [
            *forge.hooks.keep_payloads,
            *((delivery.event, delivery.payload) for delivery in forge.hooks.sent),
        ]
    problems = {delivery for event, payload in deliveries for delivery in schemas.problems(event, payload)}
    assert not problems, "\n".join(sorted(problems))
    kinds = {f"{event} {payload.get('action', '')}".strip() for event, payload in deliveries}
    assert kinds >= {
        "ping", "push", "status", "label created", "issues opened", "issues labeled", "issues unlabeled", "issues assigned",
        "issues unassigned", "issues closed", "issues reopened", "issues edited", "issue_comment created", "issue_comment edited",
        "issue_comment deleted", "pull_request opened", "pull_request synchronize", "pull_request labeled", "pull_request edited",
        "pull_request review_requested", "pull_request review_request_removed", "pull_request closed", "pull_request reopened",
        "pull_request converted_to_draft", "pull_request ready_for_review", "pull_request auto_merge_enabled",
        "pull_request auto_merge_disabled", "pull_request enqueued", "pull_request dequeued", "pull_request_review submitted",
        "pull_request_review dismissed", "pull_request_review_comment created", "pull_request_review_comment edited",
        "pull_request_review_comment deleted", "pull_request_review_thread resolved",
        "pull_request_review_thread unresolved", "check_run created", "check_run completed", "check_suite requested",
        "check_suite rerequested", "check_suite completed", "workflow_run requested", "workflow_run completed", "workflow_job completed",
        "workflow_job queued", "merge_group checks_requested", "merge_group destroyed",
    }  # fmt: skip


def play_rare_events(forge: GitHubServer) -> None:
    """Cause the events that the path from issue to merge does not cause."""
    repo = forge.repository("acme/queue", {"a.txt": "1\n"}, people={"dev": "admin", "rev": "write"})
    forge.protect(repo, checks=("tests",), merge_queue=True)
    stranger = forge.fork(repo, "stranger")
    forge.push(stranger, "idea", {"idea.txt": "1\n"}, by="stranger")
    pull = forge.pull(repo, "stranger:idea", by="stranger", draft=True)
    forge.ready(pull)
    forge.ready(pull, draft=True)
    forge.ready(pull)
    forge.close(pull)
    forge.reopen(pull)
    merges.enable_auto_merge(forge.world, pull, forge.user("dev"), "merge")
    merges.disable_auto_merge(forge.world, pull, forge.user("dev"))
    thread = forge.thread(pull, "idea.txt", 1, "Hm", by="rev")
    forge.resolve(thread)
    forge.resolve(thread, False)
    forge.check(repo, pull.head_sha, "tests", "success")
    merges.enqueue(forge.world, pull, forge.user("dev"))
    forge.check(repo, forge.group(pull) or "", "tests", "failure")
    assert pull.queue is None
    merges.enqueue(forge.world, pull, forge.user("dev"))
    assert pull.queue is not None
    forge.push(stranger, "idea", {"idea.txt": "2\n"}, by="stranger")
    assert pull.queue is None, "a push takes it out of the queue"
    forge.check(repo, pull.head_sha, "tests", "success")
    merges.enqueue(forge.world, pull, forge.user("dev"))
    forge.check(repo, forge.group(pull) or "", "tests", "success")
    assert pull.merged
    issue = forge.issue(repo, "Again")
    forge.close(issue)
    forge.reopen(issue)
    forge.push(repo, "gone", {"x.txt": "x\n"})
    closed_pull = forge.pull(repo, "gone")
    forge.delete_branch(repo, "gone")
    assert closed_pull.state == "closed"
    pulls.process_ref_changes(forge.world, repo, repo.owner)


def test_deliveries_are_signed_and_can_be_lost_repeated_and_reordered(inbox: Inbox) -> None:
    with GitHubServer() as forge:
        repo = forge.repository("acme/app")
        forge.hook(repo, inbox.url, "hush", ("issues", "issue_comment"))
        forge.hooks.drop()
        issue = forge.issue(repo, "Lost")
        forge.hooks.duplicate()
        forge.comment(issue, "twice")
        forge.hooks.hold()
        forge.comment(issue, "second")
        forge.comment(issue, "third")
        forge.hooks.release("reversed")
        forge.hooks.wait()
        lost = forge.hooks.sent[0]
        forge.hooks.redeliver(lost)
        forge.hooks.wait()
    deliveries = [(heads["x-github-event"], json.loads(body)) for heads, body in inbox.deliveries]
    assert [payload["comment"]["body"] for event, payload in deliveries if event == "issue_comment"] == [
        "twice",
        "twice",
        "third",
        "second",
    ]
    assert deliveries[-1][0] == "issues"
    assert inbox.deliveries[-1][0]["x-github-delivery"] == lost.guid
    assert inbox.deliveries[0][0]["x-github-delivery"] == inbox.deliveries[1][0]["x-github-delivery"]
    for heads, body in inbox.deliveries:
        assert heads["x-hub-signature-256"] == "sha256=" + hmac.new(b"hush", body, hashlib.sha256).hexdigest()


def test_a_webhook_created_by_rest_gets_a_ping(inbox: Inbox) -> None:
    with GitHubServer() as forge:
        forge.repository("acme/app")
        client = ForgeClient(forge, forge.token("acme"))
        client(
            "POST",
            "/repos/acme/app/hooks",
            {"config": {"url": inbox.url, "content_type": "json", "secret": "s"}, "events": ["push"]},
        )
        forge.hooks.wait()
    assert [heads["x-github-event"] for heads, _ in inbox.deliveries] == ["ping"]
