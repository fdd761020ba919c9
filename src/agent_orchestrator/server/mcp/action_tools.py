"""MCP tools that change something: start, message, stop, merge, review and answer sessions, and open issues."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from agent_orchestrator.core.authors import Author
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.errors import Conflict, Denied, UsageError
from agent_orchestrator.server.access.caller import Caller, Scope
from agent_orchestrator.server.mcp.fleet_tools import ProjectName, Row, SessionQuery
from agent_orchestrator.server.mcp.tools import Arguments, ToolAnswer, tool
from agent_orchestrator.sessions.creation import new_session

Label = Annotated[str, Field(min_length=1, max_length=80)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
_VERDICTS = {"approve": "approved", "request-changes": "changes_requested", "comment": "commented"}


class NewSession(Arguments):
    """A session to be made."""

    prompt: str = Field(
        "", max_length=100_000, description="What its agent is to do, and how one sees that it is done."
    )
    title: str = Field("", max_length=300, description="The same in a few words.")
    issue: str | None = Field(None, max_length=200, description="The issue that it is about: `12`, `LIN-3`.")
    agent: str | None = Field(None, max_length=100, description="A profile, else an agent; absent: the project's.")
    model: str | None = Field(None, max_length=200)
    base: str | None = Field(None, max_length=250, description="The branch that it starts from.")
    after: list[Name] = Field([], max_length=50, description="Sessions that must have landed before it starts.")
    files: list[Annotated[str, Field(max_length=500)]] = Field(
        [], max_length=200, description="Files that it is expected to change; glob patterns too."
    )
    labels: list[Label] = Field([], max_length=50)
    priority: int = Field(0, ge=-1000, le=1000, description="Higher comes first.")
    project: ProjectName = None


class NewMessage(SessionQuery):
    """A message."""

    text: str = Field(min_length=1, max_length=100_000)
    interrupt: bool = Field(False, description="Stop its turn first.")


class Stopping(SessionQuery):
    """A session to be stopped."""

    keep: bool = Field(False, description="Leave its workspace where it is.")


class Landing(SessionQuery):
    """A change to land."""

    strategy: Literal["squash", "merge", "rebase"] | None = None


class Remark(Arguments):
    """A comment on a line."""

    path: str = Field(min_length=1, max_length=1000)
    line: int | None = Field(None, ge=1, le=10**7)
    body: str = Field(min_length=1, max_length=10_000)


class Judgement(SessionQuery):
    """A judgement on a change."""

    verdict: Literal["approve", "request-changes", "comment"]
    body: str = Field("", max_length=20_000)
    comments: list[Remark] = Field([], max_length=100)


class Answer(SessionQuery):
    """An answer to what a session asks."""

    text: str | None = Field(None, max_length=20_000, description="The answer to a question.")
    decision: Literal["allow", "deny"] | None = Field(None, description="The answer to a permission request.")
    request: str | None = Field(
        None, max_length=100, description="`request` of the question as you saw it: nothing else is answered."
    )


class NewIssue(Arguments):
    """An issue to be opened."""

    title: str = Field(min_length=1, max_length=300)
    body: str = Field("", max_length=50_000)
    labels: list[Label] = Field([], max_length=50)
    after: list[Annotated[int, Field(ge=1, le=2**31)]] = Field(
        [], max_length=50, description="Issues that must be closed before."
    )
    project: ProjectName = None


class Sent(ToolAnswer):
    """What became of a message."""

    message_id: str | None
    state: str


class Stopped(ToolAnswer):
    """What became of a stopped session."""

    session: dict[str, Any]
    saved: list[str]
    undo: str


class Judged(ToolAnswer):
    """A pull request after a judgement."""

    session: str
    review: str


class Opened(ToolAnswer):
    """An issue."""

    number: int
    key: str
    project: str
    title: str
    state: str


@tool(Scope.STEER, Row)
async def spawn_session(caller: Caller, given: NewSession) -> dict[str, Any]:
    """Have an agent work on a task, in a workspace and on a branch of its own. It starts as soon as the limits allow; until then it
    waits, and `waitingFor` says for what."""
    project = await caller.one_project(given.project)
    request = new_session.NewSession(
        project=project,
        issue=given.issue or "",
        title=given.title,
        prompt=given.prompt,
        agent=given.agent,
        model=given.model,
        base=given.base or "",
        after=tuple(caller.find(name).id for name in given.after),
        labels=tuple(given.labels),
        priority=given.priority,
        files=tuple(given.files),
    )
    return await caller.create_session(request, caller.name)


@tool(Scope.STEER, Sent)
async def send_message(caller: Caller, given: NewMessage) -> dict[str, Any]:
    """Send a message to a session's agent. It is typed into its terminal once, when that can take it."""
    facts = _other(caller, given.session)
    return await caller.services.inbox.send(facts.id, given.text, interrupt=given.interrupt, sender=caller.name)


@tool(Scope.STEER, Stopped, destroys=True, repeats=True)
async def stop_session(caller: Caller, given: Stopping) -> dict[str, Any]:
    """Stop a session. Its work is saved first, and it can be brought back; the answer tells how."""
    facts = _other(caller, given.session)
    return await caller.services.sessions.stop(facts.id, given.keep, by=caller.name)


@tool(Scope.STEER, Row, extra="merge", repeats=True)
async def merge_session(caller: Caller, given: Landing) -> dict[str, Any]:
    """Let a session's change land through the merge queue, after its checks. What is red, conflicts or is still being worked on is
    refused."""
    facts = _other(caller, given.session)
    return await caller.services.reviews.merge(facts.id, given.strategy, by=caller.name)


@tool(Scope.STEER, Judged, extra="review")
async def review_session(caller: Caller, given: Judgement) -> dict[str, Any]:
    """Judge a session's change, with comments on lines. A request for changes is one message to its agent. An agent's approval counts
    only where the project says that it is enough."""
    facts = _other(caller, given.session)
    # It reviews the session's commits, not the reviewer's own workspace.
    reviewer = replace(caller.session, head=None) if caller.session else None
    review = await caller.services.reviews.submit(
        facts.id,
        _VERDICTS[given.verdict],
        given.body,
        [comment.model_dump(exclude_none=True) for comment in given.comments],
        words=Author(caller.name),
        reviewer=reviewer,
    )
    return {"session": facts.id, "review": review["review"], "number": review["number"]}


@tool(Scope.STEER, Sent, extra="answer")
async def answer_session(caller: Caller, given: Answer) -> dict[str, Any]:
    """Answer what a session asks: its question with `text`, its permission request with a `decision`. What else waits for a person's
    word is for people to answer."""
    facts = _other(caller, given.session)
    if given.text is None and given.decision is None:
        raise UsageError("no answer is given", "give `text`, or a `decision`")
    status = caller.services.sessions.views.status(facts).name
    if given.decision is not None and status != "blocked":
        raise Conflict(f"{facts.id} waits for no permission ({status})", "why tells what it waits for")
    return await caller.services.inbox.answer(
        facts.id, text=given.text, decision=given.decision, request=given.request, by=caller.name
    )


@tool(Scope.STEER, Opened)
async def create_issue(caller: Caller, given: NewIssue) -> dict[str, Any]:
    """Open an issue in the tracker: something that is wanted, for people and agents to take up."""
    project = await caller.one_project(given.project)
    issue = await caller.services.issues.create(
        project, given.title, caller.said(given.body), given.labels, given.after, Author(caller.name), by=caller.name
    )
    return {key: issue[key] for key in ("number", "key", "project", "title", "state", "url")}


def _other(caller: Caller, name: str) -> SessionFacts:
    """Return the session with this name; raise Denied if it is the caller's own."""
    facts = caller.find(name)
    if caller.session is not None and facts.id == caller.session.id:
        raise Denied(f"{facts.id} is your own session", "name another one: list_sessions tells them")
    return facts
