"""Requests and responses: the arguments passed to services, and the JSON returned."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from agent_orchestrator.sessions.creation.new_session import NewSession
from tests.integration.server.conftest import ServerWorld
from tests.integration.server.doubles import PlainClient

pytestmark = pytest.mark.anyio


async def test_health_shows_version_and_pid(world: ServerWorld) -> None:
    assert (await world.tcp().get("/healthz")).json() == {"status": "ok", "version": "9.9.9", "pid": os.getpid()}


async def test_a_new_session_gets_exactly_the_given_fields(world: ServerWorld) -> None:
    body = {"projectId": "app", "issue": 123, "prompt": "fix it", "after": ["a"]}
    answer = await world.unix.ask(
        "POST", "/api/sessions", body, {"Idempotency-Key": "k1", "X-AO-Cwd": "/repo", "X-AO-Config": "x.yaml"}
    )
    assert (answer.status, answer.json()) == (201, {"id": "app-new"})
    _, request, key, context = world.services.sessions.calls[-1]
    assert request == NewSession(project="app", issue="123", prompt="fix it", after=("a",)) and key
    assert (context.cwd, context.config) == (Path("/repo"), Path("/repo/x.yaml"))


async def test_a_session_is_looked_up_in_the_callers_project(world: ServerWorld) -> None:
    assert (await world.unix.get("/api/sessions/fix", X_AO_Cwd="/repo")).json() == {"id": "app-fix"}
    assert (await world.unix.get("/api/sessions/fix?project=app")).json() == {"id": "app-fix"}
    assert (await world.unix.get("/api/sessions/fix")).json() == {"id": "app-fix"}
    find_calls = [call for call in world.services.sessions.calls if call[0] == "find"]
    assert find_calls == [("find", "fix", "app"), ("find", "fix", "app"), ("find", "fix", None)]


async def test_a_message_carries_its_key_and_sender(world: ServerWorld) -> None:
    body = {"content": "go on", "interrupt": True}
    answer = await world.tcp("operator").ask("POST", "/api/sessions/fix/message", body, {"Idempotency-Key": "k2"})
    assert (answer.status, answer.json()) == (202, {"messageId": "m1", "state": "queued"})
    *sent, key, interrupt, sender = world.services.sessions.calls[-1]
    assert (sent, interrupt, sender) == (["send", "app-fix", "go on"], True, "operator") and key


async def test_an_idempotency_key_is_separate_for_each_caller(world: ServerWorld) -> None:
    async def received_key(caller: PlainClient, raw_key: str = "auto:app:1") -> str:
        body = {"projectId": "app", "prompt": "fix it"}
        assert (await caller.ask("POST", "/api/sessions", body, {"Idempotency-Key": raw_key})).status == 201
        return str(world.services.sessions.calls[-1][2])

    operator, admin = world.tcp("operator"), world.tcp("admin")
    keys = [await received_key(caller) for caller in (operator, admin, world.unix)]
    assert len({*keys, "auto:app:1"}) == 4  # and never a key that the daemon itself would use
    assert await received_key(operator) == keys[0] != await received_key(operator, "auto:app:2")
    long = {"Idempotency-Key": "x" * 201}
    assert (await operator.ask("POST", "/api/sessions", {"projectId": "app"}, long)).status == 422


async def test_stop_all_needs_a_project(world: ServerWorld) -> None:
    answer = await world.tcp("operator").ask("DELETE", "/api/sessions")
    assert (answer.status, answer.json()["exitCode"]) == (422, 2)
    assert (await world.unix.ask("DELETE", "/api/sessions?project=app&keep=1")).json() == {"stopped": []}
    assert world.services.sessions.calls[-1] == ("stop_all", "app", True, None)


async def test_notices_are_percent_encoded(world: ServerWorld) -> None:
    for path in ("/api/sessions", "/api/sessions/fix"):
        answer = await world.unix.get(path, X_AO_Cwd="/repo")
        assert [unquote(part) for part in answer.headers["x-ao-notice"].split(",")] == ["registered /repo, as app"]
    assert "x-ao-notice" not in (await world.unix.get("/api/sessions")).headers
    assert "x-ao-notice" not in (await world.unix.get("/api/sessions/none", X_AO_Cwd="/repo")).headers


@pytest.mark.parametrize(
    ("query", "project"),
    [("", "app"), ("?all=1", None), ("?project=app", "app"), ("?all=true", None), ("?project=%61pp", "app")],
)
async def test_the_list_is_of_one_project_or_all(world: ServerWorld, query: str, project: str | None) -> None:
    answer = await world.unix.get(f"/api/sessions{query}", X_AO_Cwd="/repo")
    assert (answer.status, answer.body) == (200, world.services.sessions.body)
    assert world.services.sessions.calls == [("list", project)]


async def test_the_list_is_sent_again_only_if_it_changed(world: ServerWorld) -> None:
    first = await world.unix.get("/api/sessions")
    again = await world.unix.get("/api/sessions", If_None_Match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    world.services.sessions.body = b'{"sessions": []}'
    assert (await world.unix.get("/api/sessions", If_None_Match=first.headers["etag"])).body == b'{"sessions": []}'


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "exit_code", "detail"),
    [
        ("GET", "/api/sessions/none", None, 404, 3, "there is no session none"),
        ("GET", "/api/sessions?project=none", None, 404, 3, "there is no project none"),
        ("GET", "/api/nothing", None, 404, 3, "/api/nothing"),
        ("PUT", "/api/sessions/fix", {}, 405, 2, "PUT is not possible"),
        (
            "POST",
            "/api/sessions",
            {"priority": "high"},
            422,
            2,
            'priority: input should be a valid integer, unable to parse string as an integer, not "high"',
        ),
        ("POST", "/api/sessions", {"promt": "x"}, 422, 2, "'promt': did you mean prompt?"),
        ("POST", "/api/sessions", b"{", 422, 2, "is not JSON"),
        ("POST", "/api/sessions", b"[]", 422, 2, "body: "),
        ("POST", "/api/sessions/fix/message", {}, 422, 2, "content: is missing"),
        ("POST", "/api/sessions/fix/answer", {"decision": "perhaps"}, 422, 2, '"perhaps"'),
        ("POST", "/api/sessions/fix/answer", {}, 422, 2, "give text, or a decision"),
        (
            "GET",
            "/api/events?after=x",
            None,
            422,
            2,
            'after: input should be a valid integer, unable to parse string as an integer, not "x"',
        ),
        ("POST", "/api/sessions", {"title": "boom"}, 500, 1, "a fault of its own"),
        ("POST", "/api/sessions", {"title": "short"}, 503, 1, "Too many open files: module.py"),
    ],
)
async def test_errors_are_problem_documents(
    world: ServerWorld, method: str, path: str, body: Any, status: int, exit_code: int, detail: str
) -> None:
    answer = await world.unix.ask(method, path, body)
    document = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status, document["status"], document["exitCode"]) == (status, status, exit_code)
    assert detail in document["detail"]
    assert set(document) - {"errors"} == {"type", "title", "status", "detail", "remedy", "category", "exitCode"}
    assert document["remedy"]
    assert "secret" not in answer.body.decode()


async def test_a_body_of_another_content_type_is_refused(world: ServerWorld) -> None:
    answer = await world.unix.ask(
        "POST", "/api/sessions", {"title": "x"}, {"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert answer.status == 422
    assert "application/x-www-form-urlencoded" in answer.json()["detail"]


@pytest.mark.parametrize("cwd", ["relative", "/a%00b"])
async def test_an_invalid_folder_header_is_refused(world: ServerWorld, cwd: str) -> None:
    assert (await world.unix.get("/api/sessions", X_AO_Cwd=cwd)).status == 422


async def test_a_body_has_a_limit(world: ServerWorld) -> None:
    large = b'{"title": "' + b"x" * (1 << 20) + b'"}'
    answer = await world.unix.ask("POST", "/api/sessions", large)
    assert (answer.status, answer.headers["content-type"]) == (413, "application/problem+json")
    chunks = b"".join(b"10000\r\n" + b"x" * 0x10000 + b"\r\n" for _ in range(20)) + b"0\r\n\r\n"
    answer = await world.unix.ask(
        "POST", "/api/sessions", chunks, {"Transfer-Encoding": "chunked", "Content-Length": ""}
    )
    assert answer.status == 413
    assert world.services.sessions.calls == []


async def test_headers_have_a_limit(world: ServerWorld) -> None:
    reader, writer = await world.tcp().open()
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Endless: ")
    async with asyncio.timeout(60):
        for _ in range(20):
            writer.write(b"x" * 8192)
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")
    writer.close()


async def test_progress_is_streamed_line_by_line(world: ServerWorld) -> None:
    _, reader, writer = await world.unix.begin("GET", "/api/sessions/fix/wait")
    async with asyncio.timeout(60):
        assert b'{"output":"installing"}\n' in await reader.readuntil(b"\n\r\n")
        world.services.sessions.release.set()
        assert b'{"session":{"id":"app-fix"}}\n' in await reader.read()
    writer.close()


async def test_logs_and_completions_are_plain_text(world: ServerWorld) -> None:
    log = await world.unix.get("/api/sessions/fix/log")
    assert (log.headers["content-type"], log.body.decode()) == ("text/plain; charset=utf-8", "grüße\n")
    none = await world.unix.get("/api/sessions/fix/log?tail=0")
    assert (none.status, none.json()["detail"]) == (409, "there is no log yet")
    names = await world.unix.get("/api/completion/sessions?prefix=app-f")
    assert names.body == b"app-fix\n"


async def test_a_token_is_shown_once_and_can_be_revoked(world: ServerWorld) -> None:
    created = (await world.unix.ask("POST", "/api/tokens", {"name": "ci", "role": "viewer"})).json()
    assert (await world.tcp(token=created["token"]).get("/api/sessions")).status == 200
    listed = await world.unix.get("/api/tokens")
    assert listed.json()["tokens"] == [{key: created[key] for key in created if key != "token"}]
    assert (await world.unix.ask("DELETE", f"/api/tokens/{created['id']}")).status == 200
    assert (await world.tcp(token=created["token"]).get("/api/sessions")).status == 401


async def test_shutdown_is_forwarded_to_the_daemon(world: ServerWorld) -> None:
    assert (await world.unix.ask("POST", "/api/shutdown", {"sessions": True})).status == 202
    assert world.services.ended == [True]
