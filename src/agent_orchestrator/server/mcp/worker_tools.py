"""MCP tools for a session's own agent: report progress, ask a person, report the end, and see which sessions work on its files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

from pydantic import Field

from agent_orchestrator.base.text.globs import has_wildcard, matching_paths, parent_folders
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import rfc3339
from agent_orchestrator.core.facts import COORDINATOR_KIND, SessionFacts
from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.server.access.caller import Caller, Scope, has_ended
from agent_orchestrator.server.mcp.tools import Arguments, Nothing, ToolAnswer, tool
from agent_orchestrator.sessions.session_view import MAX_FILES

MAX_COUNT = 2**31
_MAX_MESSAGES = 50
_MAX_COMPARISONS = 500_000
"""Patterns times files that one question may compare."""
_COMPARISON_THREAD = ThreadPoolExecutor(1, "who-touches")
"""One question at a time, in a thread outside the event loop."""


class Progress(Arguments):
    """How far the task is."""

    step: str = Field("", max_length=300, description="What you are doing now, in a few words.")
    done: int | None = Field(None, ge=0, le=MAX_COUNT, description="Steps that are done.")
    total: int | None = Field(None, ge=0, le=MAX_COUNT, description="Steps that there are.")
    tests_passed: int | None = Field(None, ge=0, le=MAX_COUNT, description="Tests that pass.")


class Question(Arguments):
    """A question for a person."""

    question: str = Field(min_length=1, max_length=4000, description="What you need to know, with the choices you see.")


class Done(Arguments):
    """The end of the work."""

    summary: str = Field("", max_length=4000, description="What was done, for whoever looks at the change.")


class Files(Arguments):
    """Files to ask about."""

    files: list[Annotated[str, Field(min_length=1, max_length=500)]] = Field(
        [], max_length=200, description="Paths from the repository's root; absent: those that your own task is about."
    )


class Recorded(ToolAnswer):
    """What became of a report."""

    session: str
    status: str
    next: str = Field(description="What to do now.")


class MySession(ToolAnswer):
    """The session that the agent works in."""

    id: str
    title: str
    status: str
    branch: str
    base: str


class Toucher(ToolAnswer):
    """Another session at the same files."""

    session: str
    title: str
    files: list[str]


class Touchers(ToolAnswer):
    """Who else is at the same files."""

    others: list[Toucher]


class MyMessages(ToolAnswer):
    """What was said to the agent."""

    messages: list[dict[str, Any]]
    waiting: int = Field(description="Messages that are still on their way to your terminal.")


@tool(Scope.OWN, Recorded)
async def report_progress(caller: Caller, arguments: Progress) -> dict[str, Any]:
    """Report how far your task is. Shown to people on the board; call it when a step is done or another one begins."""
    if not arguments.model_fields_set:
        raise UsageError("nothing is said", "give `step`, or `done` and `total`")
    step = " ".join(clean_text(arguments.step).split())
    return await _record_report(
        caller,
        e.AgentProgress(arguments.done, arguments.total, step or None, arguments.tests_passed),
        "go on with your task",
    )


@tool(Scope.OWN, Recorded)
async def ask_person(caller: Caller, arguments: Question) -> dict[str, Any]:
    """Ask a person something that you cannot decide yourself.

    Your session is shown as one that needs a person. End your turn after this: the answer comes as a message, maybe
    much later.
    """
    question = clean_text(arguments.question).strip()
    if not question:
        raise UsageError("the question is empty", "say what you need to know")
    return await _record_report(
        caller, e.AgentAsk(question, stands=True), "end your turn; the answer comes to you as a message"
    )


@tool(Scope.OWN, Recorded)
async def report_done(caller: Caller, arguments: Done) -> dict[str, Any]:
    """Report that your task is done: everything is committed and ready for review.

    Commit first; what is not committed is not part of the change.
    """
    return await _record_report(caller, e.AgentDone(clean_text(arguments.summary).strip()), "end your turn")


@tool(Scope.OWN, MySession)
async def my_session(caller: Caller, arguments: Nothing) -> dict[str, Any]:  # noqa: ARG001
    """Return your own session: its task, branch, base, pull request and checks, and which sessions its change will conflict with."""
    facts, _ = caller.require_own_session()
    return {**caller.services.sessions.view(facts.id), "prompt": facts.spec.prompt, "files": list(facts.spec.files)}


@tool(Scope.OWN, MyMessages)
async def my_messages(caller: Caller, arguments: Nothing) -> dict[str, Any]:  # noqa: ARG001
    """List the messages that were delivered to you by people and rules, oldest first, at most 50."""
    facts, _ = caller.require_own_session()
    delivered = [
        message for message in facts.messages if message.state in ("delivered", "acknowledged") and not message.is_task
    ]
    return {
        "messages": [
            {"messageId": message.id, "from": message.sender, "text": message.text, "at": rfc3339(message.at)}
            for message in delivered[-_MAX_MESSAGES:]
        ],
        "waiting": sum(message.pending for message in facts.messages),
    }


@tool(Scope.OWN, Touchers)
async def who_touches(caller: Caller, arguments: Files) -> dict[str, Any]:
    """List other sessions that change the same files as you, or are expected to. Ask before you change files that others may be at too."""
    facts, _ = caller.require_own_session()
    flow = caller.services.sessions.flow
    others = [
        session
        for session in flow.sessions.values()
        if session.id != facts.id
        and session.project == facts.project
        and not has_ended(session)
        and session.spec.kind != COORDINATOR_KIND
    ]
    changed_files = await caller.services.conflicts.expected_files([facts, *others])
    mine = NamedFiles(arguments.files) if arguments.files else NamedFiles(facts.spec.files, changed_files[facts.id])
    theirs = {session.id: NamedFiles(session.spec.files, changed_files[session.id]) for session in others}
    common = await asyncio.get_running_loop().run_in_executor(_COMPARISON_THREAD, common_files, mine, theirs)
    if not arguments.files:  # conflicts are known from the content, also for files that the tasks do not name
        for other, conflict in caller.services.sessions.views.conflicts_of(facts).items():
            if other in common:
                common[other] |= set(conflict.files)
    return {
        "others": [
            {"session": session.id, "title": session.spec.title, "files": sorted(common[session.id])[:MAX_FILES]}
            for session in others
            if common[session.id]
        ]
    }


class NamedFiles:
    """The files that a caller or a session names: paths and folders as they are, and patterns. Changed files are never patterns."""

    def __init__(self, names: Iterable[str], changed_files: Iterable[str] = ()) -> None:
        self.patterns = {name.removeprefix("./"): name for name in names if has_wildcard(name)}
        self.paths = {name: name for name in changed_files}
        self.paths |= {name.removeprefix("./").rstrip("/"): name for name in names if not has_wildcard(name)}


def common_files(mine: NamedFiles, others: Mapping[str, NamedFiles]) -> dict[str, set[str]]:
    """Return for each other session the files it has in common, by path, folder or pattern."""
    comparisons = sum(
        len(mine.patterns) * len(item.paths) + len(item.patterns) * len(mine.paths) for item in others.values()
    )
    if comparisons > _MAX_COMPARISONS:
        raise UsageError(
            f"the patterns and the files that others change are too many to compare: {comparisons}, {_MAX_COMPARISONS} at most",
            "give `files` with fewer patterns: folders and paths cost nothing",
        )
    folders = {name for path in mine.paths for name in parent_folders(path)}
    common_names = {}
    for session, theirs in others.items():
        common = {original for path, original in mine.paths.items() if path in theirs.paths}
        common |= {mine.paths[name] for path in theirs.paths for name in parent_folders(path) if name in mine.paths}
        if folders & theirs.paths.keys():
            common |= {
                original
                for path, original in mine.paths.items()
                if not theirs.paths.keys().isdisjoint(parent_folders(path))
            }
        common |= {theirs.paths[path] for path in matching_paths(mine.patterns, theirs.paths)}
        common |= {mine.paths[path] for path in matching_paths(theirs.patterns, mine.paths)}
        common |= {mine.patterns[item] for item in mine.patterns.keys() & theirs.patterns.keys()}
        common_names[session] = common
    return common_names


async def _record_report(
    caller: Caller, body: e.AgentProgress | e.AgentAsk | e.AgentDone, next_step: str
) -> dict[str, Any]:
    """Record a report of the caller's launch and return the session's status."""
    facts, generation = caller.require_own_session()
    await caller.services.reporting.record(facts.id, generation, body)
    current: SessionFacts = caller.services.sessions.flow.sessions[facts.id]
    return {"session": facts.id, "status": caller.services.sessions.views.status(current).name, "next": next_step}
