"""Admission of sessions, names, views, the event feed and transcripts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.base.text import terminal_output
from agent_orchestrator.config.config_set import ParallelLimit
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event, event_json
from agent_orchestrator.core.facts import Failure, Launch, SessionFacts, SessionWorkspace
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.issues import Issue
from agent_orchestrator.core.pull_request import PullRequest
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.errors import UsageError
from agent_orchestrator.fleet.notifications.receiver_health import Health
from agent_orchestrator.fleet.scheduling.start_decision import (
    MIN_FREE_DISK_BYTES,
    MIN_FREE_MEMORY_BYTES,
    FreeResources,
    StartDecision,
    decide_starts,
    holds_slot,
)
from agent_orchestrator.sessions import session_view as view_module
from agent_orchestrator.sessions.creation import names
from agent_orchestrator.sessions.session_view import SessionViews
from agent_orchestrator.testing.memory_store import MemoryStore
from agent_orchestrator.views import event_feed as feed_module
from agent_orchestrator.views.event_feed import EventFeed
from tests.parts import make_core
from tests.unit.core.test_facts_properties import begun, step
from tests.unit.core.world import SESSION, ManualClock, created

PLENTY = FreeResources(1 << 40, 1 << 40)
KEYS = {
    "id",
    "name",
    "project",
    "task",
    "kind",
    "title",
    "status",
    "activity",
    "evidence",
    "column",
    "branch",
    "base",
    "head",
    "workspacePath",
    "agent",
    "profile",
    "runtime",
    "node",
    "pid",
    "exitCode",
    "issue",
    "pr",
    "progress",
    "usage",
    "attempts",
    "waitingFor",
    "createdAt",
    "updatedAt",
}


def waiting_session(name: str, at: float = 1.0, **more: Any) -> SessionFacts:
    facts = reduce(None, created(name, at, **more))
    assert facts is not None
    return facts


def working_session(name: str) -> SessionFacts:
    return replace(begun(), id=name)


# -- who may start -----------------------------------------------------------------------------------------------------


def test_the_agent_limit_counts_working_and_just_admitted_sessions() -> None:
    limit = ParallelLimit(frozenset({"app"}), 2, "file")
    verdicts = decide_starts(
        [working_session("a"), waiting_session("b", 1.0), waiting_session("c", 2.0)], [limit], PLENTY
    )
    assert verdicts == [StartDecision("b"), StartDecision("c", "a free place (2 of 2 agents at work)")]
    assert decide_starts([waiting_session("d")], [ParallelLimit(frozenset({"other"}), 0, "file")], PLENTY) == [
        StartDecision("d")
    ]


def test_a_waiting_failed_or_stopped_session_holds_no_slot() -> None:
    facts = working_session("a")
    assert holds_slot(facts)
    idle = step(facts, Event(e.AgentActivity("idle"), 1001.0, "spool", "i", "app", SESSION, 1))
    for other in (
        idle,
        replace(facts, stopped=True),
        replace(facts, requested_state="stop"),
        replace(facts, failure=Failure("x", "y", "", 1.0)),
        replace(waiting_session("b", defer=True, prompt=""), admitted=True),
    ):
        assert not holds_slot(other)


def test_higher_priority_is_admitted_first_then_the_oldest() -> None:
    old = replace(waiting_session("old", 1.0), updated_at=50.0)
    order = [
        verdict.session
        for verdict in decide_starts(
            [waiting_session("new", 2.0), old, waiting_session("hot", 3.0, priority=5)], [], PLENTY
        )
    ]
    assert order == ["hot", "old", "new"]


def test_deferred_sessions_without_a_task_use_no_slot() -> None:
    sessions = [waiting_session("named", 1.0, defer=True, prompt=""), waiting_session("task", 2.0)]
    assert decide_starts(sessions, [ParallelLimit(frozenset({"app"}), 1, "file")], PLENTY) == [
        StartDecision("named"),
        StartDecision("task"),
    ]


def test_after_waits_until_the_other_session_is_done() -> None:
    last = waiting_session("last", after=("first",))
    first = working_session("first")
    assert decide_starts([first, last], [], PLENTY) == [StartDecision("last", "first to be done")]
    ended = Launch(1, {}, 1.0, ended=True, code=0)
    for done in (
        replace(first, done_summary="all"),
        replace(first, launch=ended),
        replace(first, done_summary="all", stopped=True),
    ):
        assert decide_starts([done, last], [], PLENTY) == [StartDecision("last")]


def test_after_waits_until_the_other_change_is_merged() -> None:
    last = waiting_session("last", after=("first",))
    place = SessionWorkspace("/w", "base", "/w/.git")
    first = replace(working_session("first"), done_summary="all", workspace=place, head="mine")
    assert decide_starts([first, last], [], PLENTY) == [StartDecision("last", "first to be done")]
    closed = "your word: the pull request of first was closed"
    for state, waits in (("open", "first to be done"), ("merged", ""), ("closed", closed)):
        changed = replace(first, pr=PullRequest(1, "x", "main", state=state))
        assert decide_starts([changed, last], [], PLENTY) == [StartDecision("last", waits)]


def test_a_session_waits_for_the_issues_its_own_issue_depends_on() -> None:
    before, mine = Issue(1, "app", "a", 1.0, 1.0), Issue(2, "app", "b", 1.0, 1.0, after=(1, 9))
    foreign = replace(before, project="other")
    issues = {"app#1": before, "app#2": mine, "other#1": foreign}
    session = waiting_session("s", issue="2")
    assert decide_starts([session], [], PLENTY, issues) == [StartDecision("s", "issue 1 to be closed")]
    closed = {**issues, "app#1": replace(before, state="closed")}
    assert decide_starts([session], [], PLENTY, closed) == [StartDecision("s")]
    assert decide_starts([waiting_session("s", issue="LIN-3"), waiting_session("t")], [], PLENTY, issues) == [
        StartDecision("s"),
        StartDecision("t"),
    ]


def test_scarce_memory_or_disk_space_delays_every_session() -> None:
    assert "memory (1 MB free)" in decide_starts([waiting_session("a")], [], FreeResources(1 << 20, 1 << 40))[0].reason
    assert (
        "disk space"
        in decide_starts([waiting_session("a")], [], FreeResources(1 << 40, MIN_FREE_DISK_BYTES - 1))[0].reason
    )
    assert decide_starts([waiting_session("a")], [], FreeResources(MIN_FREE_MEMORY_BYTES, MIN_FREE_DISK_BYTES)) == [
        StartDecision("a")
    ]


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "issue"),
    [
        ("123", "123"),
        (" #123 ", "123"),
        ("GH-123", "123"),
        ("gh-7", "7"),
        ("LIN-3", "LIN-3"),
        ("lin-3", "LIN-3"),
        ("https://github.com/o/r/issues/123", "123"),
        ("https://github.com/o/r/issues/123#issuecomment-9", "123"),
        ("https://gitlab.example/g/s/p/-/issues/4?x=1", "4"),
        ("https://gitlab.example/g/p/-/work_items/5", "5"),
        ("https://linear.app/team/issue/LIN-3/fix-the-login", "LIN-3"),
        ("https://x.atlassian.net/browse/P2J-12?focused=1", "P2J-12"),
        ("https://github.com/o/r/pull/123", None),
        ("fix 123", None),
        ("#", None),
        ("", None),
        ("١٢٣", None),
        ("https://github.com/o/r/issues/", None),
    ],
)
def test_issue_ids_are_parsed_from_any_notation(text: str, issue: str | None) -> None:
    assert names.parse_issue_id(text) == issue


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Fix the login!", "fix-the-login"),
        ("Größe ändern", "groe-andern"),
        ("日本語", "task"),
        ("../../etc/passwd", "etc-passwd"),
        ("--force -rf", "force-rf"),
        ("x" * 100, "x" * 40),
        ("a b\n\x00c", "a-b-c"),
    ],
)
def test_a_slug_is_a_valid_name(text: str, name: str) -> None:
    assert names.slug(text) == name
    assert names.validate_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "-x", ".x", "a b", "a/b", "a..b", "x.", "x.lock", "ä", "a\nb", "a\x00", "x" * 81, "~", "a:b", "@{"]
)
def test_hostile_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a session's name"):
        names.validate_name(name)


def test_a_used_name_gets_a_number_and_a_title_is_one_line() -> None:
    assert names.free_name("x", {"x", "x-2"}) == "x-3"
    assert names.title_of("\n  first \nsecond") == "first"
    assert len(names.title_of("y" * 300)) == 100


@pytest.mark.parametrize("branch", ["a..b", "-x", "a b", "x.lock", "a//b", "/x", "@{", "x~1", ""])
def test_branches_that_git_refuses_are_refused(branch: str) -> None:
    with pytest.raises(UsageError, match="branch"):
        names.normalize_branch(branch)


# -- views and feed ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def flow() -> AsyncIterator[Flow]:
    flow = Flow(MemoryStore(), ManualClock(), lambda _project, _profile: DEFAULT_RULES)
    await flow.start()
    yield flow
    await flow.stop()


@pytest.fixture
def views(flow: Flow, tmp_path: Path) -> SessionViews:
    return SessionViews(make_core(tmp_path, flow), Health())


@pytest.fixture
def feed(flow: Flow, tmp_path: Path) -> EventFeed:
    return EventFeed(make_core(tmp_path, flow))


def report(number: int) -> Event:
    return Event(e.AgentReport(str(number)), 1.0, "test", f"r{number}", "app", SESSION)


async def launch(flow: Flow) -> None:
    await flow.append(created())
    for body, generation in (
        (e.SessionAdmitted(), 0),
        (e.WorkspaceCreated("/w", "b", "main", "c0", "c0", "/g"), 0),
        (e.AgentLaunched({"pid": 7}), 1),
        (e.AgentActivity("active"), 1),
    ):
        await flow.append(Event(body, 1000.0, "spool", f"k:{body.type}", "app", SESSION, generation))


def first_in_list(views: SessionViews) -> dict[str, Any]:
    session: dict[str, Any] = json.loads(views.list_json(None))["sessions"][0]
    return session


@pytest.mark.anyio
async def test_a_new_session_has_every_key_of_its_json(flow: Flow, views: SessionViews) -> None:
    await flow.append(created())
    assert first_in_list(views).keys() >= KEYS
    assert first_in_list(views) == views.session(flow.sessions[SESSION])
    assert set(first_in_list(views)["progress"]) == {"done", "total", "step", "testsPassed"}
    assert set(first_in_list(views)["usage"]) == {"input", "output", "usd"}
    assert set(first_in_list(views)["evidence"]) == {"source", "at"}


@pytest.mark.anyio
async def test_the_list_is_cached_until_facts_or_time_change_it(flow: Flow, views: SessionViews) -> None:
    time = flow.clock
    assert isinstance(time, ManualClock)
    await launch(flow)
    first = views.list_json(None)
    assert views.list_json(None) is first
    assert first_in_list(views)["status"] == "working"
    await flow.append(Event(e.HeadMoved("c1"), 1001.0, "git", "h", "app", SESSION))
    assert first_in_list(views)["head"] == "c1"
    time.now = 1599.0
    assert first_in_list(views)["status"] == "working"
    time.now = 1600.0
    assert first_in_list(views)["status"] == "stuck"
    time.now = 1790.0
    assert "13 min" in first_in_list(views)["why"]
    assert json.loads(views.list_json("other")) == {"sessions": []}


@pytest.mark.anyio
async def test_a_usage_limit_ends_in_the_list_at_its_reset_time(flow: Flow, views: SessionViews) -> None:
    time = flow.clock
    assert isinstance(time, ManualClock)
    await launch(flow)
    await flow.append(Event(e.AgentLimit(1100.0), 1001.0, "spool", "l", "app", SESSION, 1))
    assert first_in_list(views)["waitingFor"] == "the limit's reset at 1970-01-01T00:18:20Z"
    time.now = 1100.0
    assert (first_in_list(views)["status"], first_in_list(views)["waitingFor"]) == ("limited", "its turn to go on")


@pytest.mark.anyio
async def test_a_change_renders_only_its_own_session_of_the_list(
    flow: Flow, views: SessionViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = list[str]()
    original = view_module.session_json

    def recording_session_json(facts: SessionFacts, *more: Any) -> dict[str, Any]:
        written.append(facts.id)
        return original(facts, *more)

    monkeypatch.setattr(view_module, "session_json", recording_session_json)
    await flow.append(*(created(f"app-{number}") for number in range(50)))
    views.list_json(None)
    assert len(written) == 50
    written.clear()
    await flow.append(Event(e.SessionAdmitted(), 1000.0, "test", "one", "app", "app-7"))
    views.list_json(None)
    assert written == ["app-7"]


async def next_seqs(stream: AsyncIterator[Sequence[Event]]) -> list[int]:
    async with asyncio.timeout(60):
        return [event.seq for event in await anext(stream)]


@pytest.mark.anyio
async def test_a_subscriber_gets_past_and_new_events_without_gaps_or_duplicates(flow: Flow, feed: EventFeed) -> None:
    await flow.append(*(report(number) for number in range(10)))
    stream = feed.subscribe(after=3)
    assert await next_seqs(stream) == list(range(4, 11))
    await flow.append(*(report(number) for number in range(10, 15)))
    assert await next_seqs(stream) == list(range(11, 16))
    waiting = asyncio.ensure_future(next_seqs(stream))
    await asyncio.sleep(0)
    await flow.append(report(15))
    assert await waiting == [16]
    await feed.close()
    async with asyncio.timeout(60):
        assert [event async for event in stream] == []


@pytest.mark.anyio
async def test_a_slow_subscriber_is_disconnected_and_resumes_without_a_gap(
    flow: Flow, feed: EventFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "MAX_QUEUED_EVENTS", 5)
    await flow.append(report(0))
    stream = feed.subscribe(after=0)
    seqs = await next_seqs(stream)
    waiting = asyncio.ensure_future(next_seqs(stream))
    await asyncio.sleep(0)
    await flow.append(*(report(number) for number in range(1, 30)))
    seqs += await waiting
    async with asyncio.timeout(60):
        seqs += [event.seq async for page in stream for event in page]
    assert seqs == list(range(1, len(seqs) + 1)) and len(seqs) < 30
    assert await next_seqs(feed.subscribe(after=seqs[-1])) == list(range(len(seqs) + 1, 31))


@pytest.mark.anyio
async def test_a_replay_shows_the_status_and_intents_of_each_event(flow: Flow, feed: EventFeed) -> None:
    await launch(flow)
    log = [event_json(event) for event in await flow.store.events()]
    steps = await feed.replay(log, None)
    assert [step["status"] for step in steps] == ["queued", "starting", "starting", "starting", "working"]
    kinds = [intent["kind"] for step in steps for intent in step["intents"]]
    assert kinds == ["prepare", "launch", "silence"]
    assert [step["intents"] for step in await feed.replay([{**log[0], "type": "new-thing"}], None)] == [[]]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"type": "agent-done"},
        {"type": "agent-done", "time": "yesterday"},
        {"type": "agent-usage", "time": 1.0, "session": SESSION, "data": {"input": "many"}},
        {"type": "agent-done", "time": 1.0, "seq": 1e999},
        ["no event"],
        None,
    ],
)
async def test_an_invalid_event_of_a_replayed_log_is_named_by_its_number(feed: EventFeed, bad: Any) -> None:
    with pytest.raises(UsageError, match="event 2 of the log"):
        await feed.replay([event_json(created()), bad], None)


@pytest.mark.anyio
async def test_a_log_for_replay_may_omit_keys_and_sequence_numbers(feed: EventFeed) -> None:
    line = {"type": "agent-done", "time": "2026-11-15T10:00:00Z", "session": SESSION, "source": "spool"}
    steps = await feed.replay([event_json(created()), line], None)
    assert [step["type"] for step in steps] == ["session-created", "agent-done"]


# -- transcripts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x1b[1;31mred\x1b[0m\r\n", "red\n"),
        (b"10%\r50%\r100%\n", "100%\n"),
        (b"line\r\r\nnext\r\n", "line\nnext\n"),
        (b"abc\b\bx\n", "ax\n"),
        (b"\b\bx", "x"),
        (b"\x1b]0;title\x07shown\x1b]8;;http://x\x1b\\link", "shownlink"),
        (b"\x1bPq#0\x1b\\after", "after"),
        (b"\x1b\x00[31msmuggled", "[31msmuggled"),
        (b"\xc2\x9b31mone byte", "31mone byte"),
        (b"\xff\xfe", "��"),
        ("größe\n".encode(), "größe\n"),
        (b"end\x1b", "end"),
        (b"Claude\x1b[19GCode\x1b[2Cv2\r\n", "Claude Code  v2\n"),
        (b"10%\x1b[2K\x1b[1G100%\n", "100%\n"),
        (b"\x1b[5;3HRead\x1b[5;9Hthis\r\x1b[1B\x1b[3CNext\x1b[7dLast", "\nRead this\n   Next\nLast"),
        (b"a\n\n\n\n\n\nb\n\nc", "a\n\nb\n\nc"),
    ],
)
def test_terminal_output_becomes_readable_text(data: bytes, text: str) -> None:
    assert terminal_output.to_plain_text(data) == text


def test_many_backspaces_are_processed_quickly() -> None:
    assert terminal_output.to_plain_text(b"a\b" * 200_000) == ""


def test_the_tail_of_a_log_begins_with_a_complete_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert terminal_output.tail(log) == b""
    log.write_bytes(b"first line\nsecond\n\nthird\n")
    assert terminal_output.tail(log, 15) == b"second\n\nthird\n"
    assert terminal_output.last_lines(log, 2) == "second\nthird"
    log.write_bytes(b"x" * 100)
    assert terminal_output.tail(log, 10) == b"x" * 10
    assert b"".join(terminal_output.read_chunks(log, 7)) == b"x" * 100
