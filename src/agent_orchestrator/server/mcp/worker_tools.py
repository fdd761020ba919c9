"""Tools of a session's own agent: say how far it is, ask a person, say that it is done, and see who else is at its files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

from pydantic import Field

from agent_orchestrator.base.text.globs import covered, folders, has_wildcard
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import rfc3339
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.reactions import COORDINATOR
from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.server.mcp.scopes import Caller, Scope, is_over
from agent_orchestrator.server.mcp.tools import Gives, Nothing, Takes, tool
from agent_orchestrator.sessions.session_view import MOST_FILES

MOST = 2**31
_MESSAGES = 50
_MOST_COMPARED = 500_000
"""Patterns times files of one question."""
_COMPARING = ThreadPoolExecutor(1, "who-touches")
"""One question at a time, beside the daemon's other work."""


class Progress(Takes):
    """How far the task is."""

    step: str = Field("", max_length=300, description="What you are doing now, in a few words.")
    done: int | None = Field(None, ge=0, le=MOST, description="Steps that are done.")
    total: int | None = Field(None, ge=0, le=MOST, description="Steps that there are.")
    tests_passed: int | None = Field(None, ge=0, le=MOST, description="Tests that pass.")


class Question(Takes):
    """A question for a person."""

    question: str = Field(min_length=1, max_length=4000, description="What you need to know, with the choices you see.")


class Done(Takes):
    """The end of the work."""

    summary: str = Field("", max_length=4000, description="What was done, for whoever looks at the change.")


class Files(Takes):
    """Files to ask about."""

    files: list[Annotated[str, Field(min_length=1, max_length=500)]] = Field(
        [], max_length=200, description="Paths from the repository's root; absent: those that your own task is about."
    )


class Recorded(Gives):
    """What became of a report."""

    session: str
    status: str
    next: str = Field(description="What to do now.")


class MySession(Gives):
    """The session that the agent works in."""

    id: str
    title: str
    status: str
    branch: str
    base: str


class Toucher(Gives):
    """Another session at the same files."""

    session: str
    title: str
    files: list[str]


class Touchers(Gives):
    """Who else is at the same files."""

    others: list[Toucher]


class MyMessages(Gives):
    """What was said to the agent."""

    messages: list[dict[str, Any]]
    waiting: int = Field(description="Messages that are still on their way to your terminal.")


@tool(Scope.OWN, Recorded)
async def report_progress(caller: Caller, given: Progress) -> dict[str, Any]:
    """Say how far your task is. Shown to people on the board; call it when a step is done or another one begins."""
    if not given.model_fields_set:
        raise UsageError("nothing is said", "give `step`, or `done` and `total`")
    step = " ".join(clean_text(given.step).split())
    return await _tell(
        caller, e.AgentProgress(given.done, given.total, step or None, given.tests_passed), "go on with your task"
    )


@tool(Scope.OWN, Recorded)
async def ask_person(caller: Caller, given: Question) -> dict[str, Any]:
    """Ask a person something that you cannot decide yourself. Your session is shown as one that needs somebody. End your turn after this:
    the answer comes as a message, maybe much later."""
    question = clean_text(given.question).strip()
    if not question:
        raise UsageError("the question is empty", "say what you need to know")
    return await _tell(caller, e.AgentAsk(question, stands=True), "end your turn; the answer comes to you as a message")


@tool(Scope.OWN, Recorded)
async def report_done(caller: Caller, given: Done) -> dict[str, Any]:
    """Say that your task is done: everything is committed and ready to be looked at. Commit first; what is not committed is not part of
    the change."""
    return await _tell(caller, e.AgentDone(clean_text(given.summary).strip()), "end your turn")


@tool(Scope.OWN, MySession)
async def my_session(caller: Caller, given: Nothing) -> dict[str, Any]:  # noqa: ARG001
    """Your own session: its task, branch, base, pull request and checks, and whom its change will collide with."""
    facts, _ = caller.own()
    return {**caller.services.sessions.view(facts.id), "prompt": facts.spec.prompt, "files": list(facts.spec.files)}


@tool(Scope.OWN, MyMessages)
async def my_messages(caller: Caller, given: Nothing) -> dict[str, Any]:  # noqa: ARG001
    """The messages that were delivered to you, oldest first, at most 50: what people and rules told you."""
    facts, _ = caller.own()
    came = [one for one in facts.messages if one.state in ("delivered", "acknowledged") and not one.task]
    return {
        "messages": [
            {"messageId": one.id, "from": one.sender, "text": one.text, "at": rfc3339(one.at)}
            for one in came[-_MESSAGES:]
        ],
        "waiting": sum(one.pending for one in facts.messages),
    }


@tool(Scope.OWN, Touchers)
async def who_touches(caller: Caller, given: Files) -> dict[str, Any]:
    """Which other sessions change the same files as you, or are expected to. Ask before you change files that others may be at too."""
    facts, _ = caller.own()
    flow = caller.services.sessions.flow
    others = [
        one
        for one in flow.sessions.values()
        if one.id != facts.id and one.project == facts.project and not is_over(one) and one.spec.kind != COORDINATOR
    ]
    about = await caller.services.conflicts.expected([facts, *others])
    mine = Named(given.files) if given.files else Named(facts.spec.files, about[facts.id])
    theirs = {one.id: Named(one.spec.files, about[one.id]) for one in others}
    found = await asyncio.get_running_loop().run_in_executor(_COMPARING, shared, mine, theirs)
    if not given.files:  # collisions are known by content, whatever the tasks say
        for other, met in caller.services.sessions.views.met(facts).items():
            if other in found:
                found[other] |= set(met.files)
    return {
        "others": [
            {"session": one.id, "title": one.spec.title, "files": sorted(found[one.id])[:MOST_FILES]}
            for one in others
            if found[one.id]
        ]
    }


class Named:
    """What a caller or a session names, cleaned: paths and folders as they are, and patterns. What somebody changed is never a pattern."""

    def __init__(self, said: Iterable[str], changed: Iterable[str] = ()) -> None:
        self.patterns = {one.removeprefix("./"): one for one in said if has_wildcard(one)}
        self.paths = {one: one for one in changed}
        self.paths |= {one.removeprefix("./").rstrip("/"): one for one in said if not has_wildcard(one)}


def shared(mine: Named, others: Mapping[str, Named]) -> dict[str, set[str]]:
    """Whoever of the others names the same, by path, folder or pattern, with that."""
    work = sum(len(mine.patterns) * len(one.paths) + len(one.patterns) * len(mine.paths) for one in others.values())
    if work > _MOST_COMPARED:
        raise UsageError(
            f"the patterns and the files that others change are too many to compare: {work}, {_MOST_COMPARED} at most",
            "give `files` with fewer patterns: folders and paths cost nothing",
        )
    around = {name for path in mine.paths for name in folders(path)}
    found = {}
    for session, theirs in others.items():
        meet = {said for path, said in mine.paths.items() if path in theirs.paths}
        meet |= {mine.paths[name] for path in theirs.paths for name in folders(path) if name in mine.paths}
        if around & theirs.paths.keys():
            meet |= {said for path, said in mine.paths.items() if not theirs.paths.keys().isdisjoint(folders(path))}
        meet |= {theirs.paths[path] for path in covered(mine.patterns, theirs.paths)}
        meet |= {mine.paths[path] for path in covered(theirs.patterns, mine.paths)}
        meet |= {mine.patterns[one] for one in mine.patterns.keys() & theirs.patterns.keys()}
        found[session] = meet
    return found


async def _tell(caller: Caller, body: e.AgentProgress | e.AgentAsk | e.AgentDone, then: str) -> dict[str, Any]:
    facts, generation = caller.own()
    await caller.services.reporting.tell(facts.id, generation, body)
    now: SessionFacts = caller.services.sessions.flow.sessions[facts.id]
    return {"session": facts.id, "status": caller.services.sessions.views.status(now).name, "next": then}
