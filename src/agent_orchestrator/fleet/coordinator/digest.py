"""The digest for a coordinating agent: `build_digest(events, sessions, me) -> Digest`. Pure.

It includes only what may need the agent's decision, one line each; its own actions, progress and routine are left out.
Text by agents and by people with write access to the repository is quoted; text by others is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.authors import HAS_WRITE_ACCESS
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import COORDINATOR_KIND, SessionFacts
from agent_orchestrator.core.pull_request import NOT_SET_UP
from agent_orchestrator.core.status import derive_status

MAX_LINES = 40
"""The most lines of news in a digest; the rest is counted."""
MAX_QUOTE_LENGTH = 300
MAX_LINE_LENGTH = 240

Line = tuple[str, str]
"""What happened, and text to be quoted below it."""


@dataclass(frozen=True, slots=True)
class DigestMessage:
    """A message for the coordinating agent."""

    text: str
    events: int
    """The number of events that it reports."""
    left_out: int = 0


def select_news(events: Iterable[Event], me: SessionFacts) -> list[Event]:
    """Return the events that a coordinating agent is informed of; a session's later event replaces an earlier one of the same kind."""
    latest: dict[tuple[str, ...], Event] = {}
    for event in events:
        if not is_news(event, me):
            continue
        kind = _replacement_key(event)
        latest.pop(kind, None)
        latest[kind] = event
    return sorted(latest.values(), key=lambda event: event.seq)


def is_news(event: Event, me: SessionFacts) -> bool:
    """Return whether the coordinating agent is informed of an event: of its project, of a kind in `_LINE_FUNCTIONS`, and not its own."""
    if event.project != me.project or event.session == me.id or type(event.body) not in _LINE_FUNCTIONS:
        return False
    return not _is_coordinator(event.source, me) and not _is_coordinator(str(getattr(event.body, "author", "")), me)


def _is_coordinator(author: str, me: SessionFacts) -> bool:
    """Return whether an event's source or author is the coordinating agent itself."""
    return author in (me.id, f"session {me.id}")


def build_digest(
    events: Sequence[Event], sessions: Mapping[str, SessionFacts], me: SessionFacts, now: float
) -> DigestMessage | None:
    """Return the message that reports these events and the project's state, or None if nothing of them is worth a line now."""
    lines_by_session: dict[str, list[Line]] = {}
    count = left_out = lines = 0
    for event in select_news(events, me):
        facts = sessions.get(event.session or "")
        if facts is not None and facts.spec.kind == COORDINATOR_KIND:
            continue
        line = _LINE_FUNCTIONS[type(event.body)](event.body, facts, me)
        if line is None:
            continue
        count += 1
        if lines == MAX_LINES:
            left_out += 1
            continue
        lines += 1
        lines_by_session.setdefault(event.session or "", []).append(line)
    if not lines_by_session:
        return None
    since = rfc3339(min(event.time for event in events))[11:16]
    parts = [f"News from {me.project} since {since} UTC (you are told of all that matters; there is no need to ask):"]
    for session, entries in lines_by_session.items():
        parts += _session_lines(session, sessions.get(session), entries)
    if left_out:
        parts.append(f"- … and {left_out} more; list_sessions shows where everything stands")
    parts.append(state_line(sessions, me, now))
    return DigestMessage("\n".join(parts), count, left_out)


def state_line(sessions: Mapping[str, SessionFacts], me: SessionFacts, now: float) -> str:
    """Return the number of the project's sessions in each state, as one line."""
    columns: dict[str, int] = {}
    for facts in sessions.values():
        if facts.project == me.project and facts.spec.kind != COORDINATOR_KIND:
            column = derive_status(facts, now).column
            columns[column] = columns.get(column, 0) + 1
    parts = [f"{number} {_COLUMNS.get(column, column)}" for column, number in columns.items() if column != "Done"]
    return f"Now: {', '.join(parts) or 'nobody is at work'}."


_COLUMNS = {
    "Working": "at work or waiting for a place",
    "Needs you": "waiting for a person or at rest",
    "In review": "in review",
    "Ready to merge": "ready to merge",
}


def _session_lines(session: str, facts: SessionFacts | None, news: Sequence[Line]) -> list[str]:
    if not session:
        return [line for description, quoted in news for line in (f"- {_shorten(description)}", *_quote(quoted))]
    title = f" ({_shorten(facts.spec.title, 60)})" if facts else ""
    if len(news) == 1:
        description, quoted = news[0]
        return [f"- {session}{title}: {_shorten(description)}", *_quote(quoted)]
    lines = [f"- {session}{title}:"]
    for description, quoted in news:
        lines += [f"  - {_shorten(description)}", *_quote(quoted)]
    return lines


def _quote(text: str) -> list[str]:
    """Return text of others as a quotation of limited length."""
    one_line = " ".join(text.split())
    return [f"  > {one_line[:MAX_QUOTE_LENGTH]}{' …' if len(one_line) > MAX_QUOTE_LENGTH else ''}"] if one_line else []


def _shorten(text: str, longest: int = MAX_LINE_LENGTH) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _replacement_key(event: Event) -> tuple[str, ...]:
    """Return the key by which a later event replaces an earlier one: a session's turn ended again, a check failed again."""
    body = event.body
    if isinstance(body, e.AgentTurnEnded | e.AgentDone):
        return (event.session or "", "turn")
    detail = next((str(value) for name in _IDENTIFYING_FIELDS if (value := getattr(body, name, None)) is not None), "")
    return (event.session or "", event.type, detail)


_IDENTIFYING_FIELDS = ("number", "review", "comment", "other", "name", "rule", "plan", "fix", "offer")


# -- a line for each kind --------------------------------------------------------------------------------------------------


def _turn_ended_line(body: e.AgentTurnEnded, facts: SessionFacts | None, _me: SessionFacts) -> Line | None:
    if facts is None or facts.stopped or (facts.pr is not None and facts.pr.state == "merged"):
        return None
    return ("asks a person" if facts.question else "ended its turn"), body.text


def _done_line(body: e.AgentDone, facts: SessionFacts | None, _me: SessionFacts) -> Line | None:
    pr = facts.pr if facts else None
    return f"says it is done{f' (pull request #{pr.number})' if pr else ''}", body.summary


def _question_line(body: e.AgentAsk, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return "asks a person", body.question


def _permission_line(body: e.PermissionAsked, facts: SessionFacts | None, _me: SessionFacts) -> Line | None:
    """Report only a permission request that still waits: rules answer most of them."""
    if facts is None or facts.permission is None or facts.permission.command != body.command:
        return None
    return "waits for a person's permission", f"{body.tool}: {body.command}"


def _exited_line(body: e.AgentExited, facts: SessionFacts | None, _me: SessionFacts) -> Line:
    cause = f"signal {body.signal}" if body.signal else f"exit code {body.code}"
    cause += f", {body.reason}" if body.reason else ""
    is_success = body.code == 0 and not body.signal
    return ("its agent has ended" if is_success else f"its agent died ({cause})"), "" if is_success else (
        facts.last_turn_text if facts else ""
    )


def _lost_line(body: e.AgentLost, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"its agent is gone: {body.reason}; a message brings it back", ""


def _failed_line(body: e.SessionFailed, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"{body.step} failed: {body.error}", ""


def _stopped_line(_body: e.SessionStopped, facts: SessionFacts | None, me: SessionFacts) -> Line | None:
    is_merged = facts is not None and facts.pr is not None and facts.pr.state == "merged"
    if facts is None or is_merged or _is_coordinator(facts.stopped_by, me):
        return None
    return f"was stopped by {'a person' if facts.stopped_by == 'person' else facts.stopped_by}; its work is saved", ""


def _ready_line(_body: e.PrReady, facts: SessionFacts | None, _me: SessionFacts) -> Line | None:
    return (f"pull request #{facts.pr.number} is ready", "") if facts and facts.pr else None


def _merged_line(body: e.PrMerged, facts: SessionFacts | None, _me: SessionFacts) -> Line:
    base = facts.pr.base if facts and facts.pr else "its base"
    return f"landed on {base} as {body.commit[:10]}", ""


def _closed_line(_body: e.PrClosed, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return "its pull request was closed without landing", ""


def _check_line(body: e.CheckFinished, _facts: SessionFacts | None, _me: SessionFacts) -> Line | None:
    if body.state == NOT_SET_UP:
        return f"check {body.name}: environment not set up: {body.reason}", ""
    if body.state not in ("failure", "timed_out"):
        return None
    where = ", as on the base branch" if body.on_base else "; the agent has the failures"
    return f"check {body.name} {'failed' if body.state == 'failure' else 'took too long'}{where}", ""


def _checks_settled_line(body: e.ChecksSettled, facts: SessionFacts | None, _me: SessionFacts) -> Line | None:
    is_green = facts is not None and facts.pr is not None and facts.pr.is_green(body.head) and not body.none
    return ("its checks passed", "") if is_green else None


def _review_line(body: e.ReviewSubmitted, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    action = {"approved": "approved", "changes_requested": "changes requested"}.get(body.verdict, "commented on")
    if body.write_access != HAS_WRITE_ACCESS:
        return f"{action} by somebody who may not write to the repository (text left out)", ""
    return f"{action} by {body.author}", body.body


def _comment_line(body: e.CommentAdded, _facts: SessionFacts | None, _me: SessionFacts) -> Line | None:
    if body.by_agent or body.review:
        return None
    if body.write_access != HAS_WRITE_ACCESS:
        return "a comment by somebody who may not write to the repository (text left out)", ""
    return f"a comment by {body.author}", body.body


def _merge_failed_line(body: e.LandingFailed, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"could not land: {body.reason}", ""


def _conflict_predicted_line(body: e.ConflictPredicted, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    more = f" and {len(body.files) - 3} more" if len(body.files) > 3 else ""
    return f"will collide with {body.other} on {', '.join(body.files[:3])}{more}", ""


def _conflicts_line(body: e.ConflictsSeen, _facts: SessionFacts | None, _me: SessionFacts) -> Line | None:
    return (f"conflicts with its base in {', '.join(body.files[:3])}; its agent is told", "") if body.files else None


def _escalated_line(body: e.Escalated, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"a person was called ({body.trigger}: {body.reason})", ""


def _offered_line(body: e.ActionOffered, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"a person is asked whether to {body.action} ({body.trigger})", ""


def _usage_limit_line(body: e.AgentLimit, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    until = f" until {rfc3339(body.resets_at)[:16]}Z" if body.resets_at else ""
    return f"met its usage limit{until}; it goes on by itself", ""


def _budget_line(body: e.BudgetExceeded, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"over its budget: {body.spent} of {body.budget} ({body.scope})", ""


def _all_complete_line(_body: e.AllComplete, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return "with that, every session of the project is done", ""


def _issue_opened_line(body: e.IssueOpened, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    name = body.key or f"#{body.number}"
    if body.write_access != HAS_WRITE_ACCESS:
        return f"issue {name} was opened by somebody who may not write to the repository (text left out)", ""
    return f"issue {name} was opened by {body.author}", body.title


def _issue_comment_line(body: e.IssueComment, _facts: SessionFacts | None, _me: SessionFacts) -> Line | None:
    if body.write_access != HAS_WRITE_ACCESS:
        return None
    return f"a comment by {body.author} on issue #{body.number}", body.body


def _issue_line(body: e.IssueChanged, _facts: SessionFacts | None, _me: SessionFacts) -> Line | None:
    return (f"issue #{body.number} is {body.state} now", "") if body.state else None


def _plan_drafted_line(body: e.PlanDrafted, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return (
        f"plan {body.plan} is made, with {len(body.tasks)} task{'' if len(body.tasks) == 1 else 's'}: get_plan shows it",
        "",
    )


def _plan_failed_line(body: e.PlanFailed | e.PlanRefused, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    outcome = "could not be made" if isinstance(body, e.PlanFailed) else "cannot be applied as it is"
    return f"plan {body.plan} {outcome}: {body.error}", ""


def _plan_applied_line(body: e.PlanApplied, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"plan {body.plan} is applied: its {len(body.issues)} tasks are issues now", ""


def _plan_discarded_line(body: e.PlanDiscarded, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"plan {body.plan} was discarded", ""


def _fix_ended_line(body: e.FixEnded, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"the fixing run {body.fix} is over: {body.outcome}{f' ({body.reason})' if body.reason else ''}", ""


def _reading_failed_line(body: e.ReadingFailed, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"{body.name} cannot be read: {body.reason}", ""


def _reading_resumed_line(body: e.ReadingResumed, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"{body.name} can be read again", ""


_LINE_FUNCTIONS: Mapping[type[e.Body], Callable[[Any, SessionFacts | None, SessionFacts], Line | None]] = {
    e.AgentTurnEnded: _turn_ended_line,
    e.AgentDone: _done_line,
    e.AgentAsk: _question_line,
    e.PermissionAsked: _permission_line,
    e.AgentExited: _exited_line,
    e.AgentLost: _lost_line,
    e.AgentLimit: _usage_limit_line,
    e.SessionFailed: _failed_line,
    e.SessionStopped: _stopped_line,
    e.PrReady: _ready_line,
    e.PrMerged: _merged_line,
    e.PrClosed: _closed_line,
    e.CheckFinished: _check_line,
    e.ChecksSettled: _checks_settled_line,
    e.ReviewSubmitted: _review_line,
    e.CommentAdded: _comment_line,
    e.LandingFailed: _merge_failed_line,
    e.ConflictPredicted: _conflict_predicted_line,
    e.ConflictsSeen: _conflicts_line,
    e.Escalated: _escalated_line,
    e.ActionOffered: _offered_line,
    e.BudgetExceeded: _budget_line,
    e.AllComplete: _all_complete_line,
    e.IssueOpened: _issue_opened_line,
    e.IssueChanged: _issue_line,
    e.IssueComment: _issue_comment_line,
    e.PlanDrafted: _plan_drafted_line,
    e.PlanFailed: _plan_failed_line,
    e.PlanRefused: _plan_failed_line,
    e.PlanApplied: _plan_applied_line,
    e.PlanDiscarded: _plan_discarded_line,
    e.FixEnded: _fix_ended_line,
    e.ReadingFailed: _reading_failed_line,
    e.ReadingResumed: _reading_resumed_line,
}
