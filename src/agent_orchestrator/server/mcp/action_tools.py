"""MCP tools that change something: start, message, stop, merge, review and answer sessions, and open issues."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from agent_orchestrator.changes.reviews.new_review import NewComment
from agent_orchestrator.core.authors import TextAuthor
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


class StopArguments(SessionQuery):
    """A session to be stopped."""

    keep: bool = Field(False, description="Leave its workspace where it is.")


class MergeArguments(SessionQuery):
    """A change to merge."""

    strategy: Literal["squash", "merge", "rebase"] | None = None


class Remark(Arguments):
    """A comment on a line."""

    path: str = Field(min_length=1, max_length=1000)
    line: int | None = Field(None, ge=1, le=10**7)
    body: str = Field(min_length=1, max_length=10_000)


class ReviewArguments(SessionQuery):
    """A review of a change."""

    verdict: Literal["approve", "request-changes", "comment"]
    body: str = Field("", max_length=20_000)
    comments: list[Remark] = Field([], max_length=100)


class AnswerArguments(SessionQuery):
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


class SentMessage(ToolAnswer):
    """What became of a message."""

    message_id: str | None
    state: str


class StoppedSession(ToolAnswer):
    """What became of a stopped session."""

    session: dict[str, Any]
    saved: list[str]
    undo: str


class ReviewedSession(ToolAnswer):
    """A pull request after a review."""

    session: str
    review: str


class OpenedIssue(ToolAnswer):
    """An issue."""

    number: int
    key: str
    project: str
    title: str
    state: str


@tool(Scope.STEER, Row)
async def spawn_session(caller: Caller, arguments: NewSession) -> dict[str, Any]:
    """Start a session: an agent works on a task in its own workspace and on its own branch.

    It starts as soon as the limits allow; until then it waits, and `waitingFor` says for what.
    """
    project = await caller.require_project(arguments.project)
    request = new_session.NewSession(
        project=project,
        issue=arguments.issue or "",
        title=arguments.title,
        prompt=arguments.prompt,
        agent=arguments.agent,
        model=arguments.model,
        base=arguments.base or "",
        after=tuple(caller.find_session(name).id for name in arguments.after),
        labels=tuple(arguments.labels),
        priority=arguments.priority,
        files=tuple(arguments.files),
    )
    return await caller.create_session(request, caller.name)


@tool(Scope.STEER, SentMessage)
async def send_message(caller: Caller, arguments: NewMessage) -> dict[str, Any]:
    """Send a message to a session's agent. It is typed into its terminal once, when that can take it."""
    facts = _require_other_session(caller, arguments.session)
    return await caller.services.inbox.send(facts.id, arguments.text, interrupt=arguments.interrupt, sender=caller.name)


@tool(Scope.STEER, StoppedSession, is_destructive=True, is_idempotent=True)
async def stop_session(caller: Caller, arguments: StopArguments) -> dict[str, Any]:
    """Stop a session. Its work is saved first, and it can be restored; the answer says how."""
    facts = _require_other_session(caller, arguments.session)
    return await caller.services.sessions.stop(facts.id, arguments.keep, by=caller.name)


@tool(Scope.STEER, Row, extra="merge", is_idempotent=True)
async def merge_session(caller: Caller, arguments: MergeArguments) -> dict[str, Any]:
    """Merge a session's change through the merge queue, after its checks.

    A change that is red, conflicts or is still being worked on is refused.
    """
    facts = _require_other_session(caller, arguments.session)
    return await caller.services.reviews.request_merge(facts.id, arguments.strategy, by=caller.name)


@tool(Scope.STEER, ReviewedSession, extra="review")
async def review_session(caller: Caller, arguments: ReviewArguments) -> dict[str, Any]:
    """Review a session's change, with comments on lines.

    A request for changes is one message to its agent. An agent's approval counts only where the project says that it is
    enough.
    """
    facts = _require_other_session(caller, arguments.session)
    # It reviews the session's commits, not the reviewer's own workspace.
    reviewer = replace(caller.session, head=None) if caller.session else None
    review = await caller.services.reviews.submit(
        facts.id,
        _VERDICTS[arguments.verdict],
        arguments.body,
        [NewComment(comment.body, comment.path, comment.line) for comment in arguments.comments],
        words=TextAuthor(caller.name),
        reviewer=reviewer,
    )
    return {"session": facts.id, "review": review["review"], "number": review["number"]}


@tool(Scope.STEER, SentMessage, extra="answer")
async def answer_session(caller: Caller, arguments: AnswerArguments) -> dict[str, Any]:
    """Answer what a session asks: its question with `text`, its permission request with a `decision`.

    Other approvals are given by people only.
    """
    facts = _require_other_session(caller, arguments.session)
    if arguments.text is None and arguments.decision is None:
        raise UsageError("no answer is given", "give `text`, or a `decision`")
    status = caller.services.sessions.views.status(facts).name
    if arguments.decision is not None and status != "blocked":
        raise Conflict(f"{facts.id} waits for no permission ({status})", "why tells what it waits for")
    return await caller.services.inbox.answer(
        facts.id, text=arguments.text, decision=arguments.decision, request=arguments.request, by=caller.name
    )


@tool(Scope.STEER, OpenedIssue)
async def create_issue(caller: Caller, arguments: NewIssue) -> dict[str, Any]:
    """Open an issue in the tracker, for people and agents to work on."""
    project = await caller.require_project(arguments.project)
    issue = await caller.services.issues.create(
        project,
        arguments.title,
        caller.tracker_text(arguments.body),
        arguments.labels,
        arguments.after,
        TextAuthor(caller.name),
        by=caller.name,
    )
    return {key: issue[key] for key in ("number", "key", "project", "title", "state", "url")}


def _require_other_session(caller: Caller, name: str) -> SessionFacts:
    """Return the session with this name; raise Denied if it is the caller's own."""
    facts = caller.find_session(name)
    if caller.session is not None and facts.id == caller.session.id:
        raise Denied(f"{facts.id} is your own session", "name another one: list_sessions tells them")
    return facts
