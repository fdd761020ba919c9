"""What a coordinating agent is told: `digest(events, sessions, me) -> Digest`. Pure.

Of all that happened in its project only what may call for its judgement, in a line each: what it did itself, progress and routine are
left out. Words of agents and of people who may write to the repository are quoted; those of strangers are not passed on at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.authors import WRITES
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import NOT_SET_UP
from agent_orchestrator.core.reactions import COORDINATOR
from agent_orchestrator.core.status import derive

MOST_LINES = 40
"""Lines of news in a digest; the rest is counted."""
LONGEST_QUOTE = 300
LONGEST_LINE = 240

Line = tuple[str, str]
"""What happened, and words to be quoted below it."""


@dataclass(frozen=True, slots=True)
class Digest:
    """A message for the coordinating agent."""

    text: str
    events: int
    """How many it tells of."""
    left_out: int = 0


def news(events: Iterable[Event], me: SessionFacts) -> list[Event]:
    """Those of a project's events that a coordinating agent is told of; a session's later one replaces an earlier one of its kind."""
    latest: dict[tuple[str, ...], Event] = {}
    for event in events:
        if not tells(event, me):
            continue
        kind = _same(event)
        latest.pop(kind, None)
        latest[kind] = event
    return sorted(latest.values(), key=lambda event: event.seq)


def tells(event: Event, me: SessionFacts) -> bool:
    """Is this news to the coordinating agent?"""
    if event.project != me.project or event.session == me.id or type(event.body) not in _LINES:
        return False
    return not _mine(event.source, me) and not _mine(str(getattr(event.body, "author", "")), me)


def _mine(who: str, me: SessionFacts) -> bool:
    """Is this the coordinating agent itself, by the name under which events tell of what agents do?"""
    return who in (me.id, f"session {me.id}")


def digest(
    events: Sequence[Event], sessions: Mapping[str, SessionFacts], me: SessionFacts, now: float
) -> Digest | None:
    """The message that tells of these events, and of how things stand; none: nothing of it is worth a word any more."""
    told: dict[str, list[Line]] = {}
    count = left_out = lines = 0
    for event in news(events, me):
        facts = sessions.get(event.session or "")
        if facts is not None and facts.spec.kind == COORDINATOR:
            continue
        line = _LINES[type(event.body)](event.body, facts, me)
        if line is None:
            continue
        count += 1
        if lines == MOST_LINES:
            left_out += 1
            continue
        lines += 1
        told.setdefault(event.session or "", []).append(line)
    if not told:
        return None
    since = rfc3339(min(event.time for event in events))[11:16]
    parts = [f"News from {me.project} since {since} UTC (you are told of all that matters; there is no need to ask):"]
    for session, entries in told.items():
        parts += _of_session(session, sessions.get(session), entries)
    if left_out:
        parts.append(f"- … and {left_out} more; list_sessions shows where everything stands")
    parts.append(standing(sessions, me, now))
    return Digest("\n".join(parts), count, left_out)


def standing(sessions: Mapping[str, SessionFacts], me: SessionFacts, now: float) -> str:
    """How the project's sessions stand, in a line."""
    columns: dict[str, int] = {}
    for facts in sessions.values():
        if facts.project == me.project and facts.spec.kind != COORDINATOR:
            column = derive(facts, now).column
            columns[column] = columns.get(column, 0) + 1
    parts = [f"{number} {_COLUMNS.get(column, column)}" for column, number in columns.items() if column != "Done"]
    return f"Now: {', '.join(parts) or 'nobody is at work'}."


_COLUMNS = {
    "Working": "at work or waiting for a place",
    "Needs you": "waiting for a person or at rest",
    "In review": "in review",
    "Ready to merge": "ready to merge",
}


def _of_session(session: str, facts: SessionFacts | None, entries: Sequence[Line]) -> list[str]:
    if not session:
        return [line for what, quoted in entries for line in (f"- {_short(what)}", *_quote(quoted))]
    title = f" ({_short(facts.spec.title, 60)})" if facts else ""
    if len(entries) == 1:
        what, quoted = entries[0]
        return [f"- {session}{title}: {_short(what)}", *_quote(quoted)]
    found = [f"- {session}{title}:"]
    for what, quoted in entries:
        found += [f"  - {_short(what)}", *_quote(quoted)]
    return found


def _quote(text: str) -> list[str]:
    """Words of others, as such: at most a few lines, each marked."""
    cut = " ".join(text.split())
    return [f"  > {cut[:LONGEST_QUOTE]}{' …' if len(cut) > LONGEST_QUOTE else ''}"] if cut else []


def _short(text: str, most: int = LONGEST_LINE) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _same(event: Event) -> tuple[str, ...]:
    """What a later event says anew: a session's turn ended again, a check failed again."""
    body = event.body
    if isinstance(body, e.AgentTurnEnded | e.AgentDone):
        return (event.session or "", "turn")
    detail = next((str(value) for name in _OF_ITS_OWN if (value := getattr(body, name, None)) is not None), "")
    return (event.session or "", event.type, detail)


_OF_ITS_OWN = ("number", "review", "comment", "other", "name", "rule", "plan", "fix", "offer")


# -- a line for each kind --------------------------------------------------------------------------------------------------


def _turn_ended(body: e.AgentTurnEnded, facts: SessionFacts | None, _me: SessionFacts) -> Line | None:
    if facts is None or facts.stopped or (facts.pr is not None and facts.pr.state == "merged"):
        return None
    return ("asks a person" if facts.question else "ended its turn"), body.text


def _done(body: e.AgentDone, facts: SessionFacts | None, _me: SessionFacts) -> Line | None:
    pr = facts.pr if facts else None
    return f"says it is done{f' (pull request #{pr.number})' if pr else ''}", body.summary


def _ask(body: e.AgentAsk, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return "asks a person", body.question


def _permission(body: e.PermissionAsked, facts: SessionFacts | None, _me: SessionFacts) -> Line | None:
    """Only what still waits: rules answer most of them."""
    if facts is None or facts.permission is None or facts.permission.command != body.command:
        return None
    return "waits for a person's permission", f"{body.tool}: {body.command}"


def _exited(body: e.AgentExited, facts: SessionFacts | None, _me: SessionFacts) -> Line:
    how = f"signal {body.signal}" if body.signal else f"exit code {body.code}"
    how += f", {body.reason}" if body.reason else ""
    good = body.code == 0 and not body.signal
    return ("its agent has ended" if good else f"its agent died ({how})"), "" if good else (facts.said if facts else "")


def _lost(body: e.AgentLost, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"its agent is gone: {body.reason}; a message brings it back", ""


def _failed(body: e.SessionFailed, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"{body.step} failed: {body.error}", ""


def _stopped(_body: e.SessionStopped, facts: SessionFacts | None, me: SessionFacts) -> Line | None:
    landed = facts is not None and facts.pr is not None and facts.pr.state == "merged"
    if facts is None or landed or _mine(facts.stopped_by, me):
        return None
    return f"was stopped by {'a person' if facts.stopped_by == 'person' else facts.stopped_by}; its work is saved", ""


def _ready(_body: e.PrReady, facts: SessionFacts | None, _me: SessionFacts) -> Line | None:
    return (f"pull request #{facts.pr.number} is ready", "") if facts and facts.pr else None


def _merged(body: e.PrMerged, facts: SessionFacts | None, _me: SessionFacts) -> Line:
    base = facts.pr.base if facts and facts.pr else "its base"
    return f"landed on {base} as {body.commit[:10]}", ""


def _closed(_body: e.PrClosed, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return "its pull request was closed without landing", ""


def _check(body: e.CheckFinished, _facts: SessionFacts | None, _me: SessionFacts) -> Line | None:
    if body.state == NOT_SET_UP:
        return f"check {body.name}: environment not set up: {body.reason}", ""
    if body.state not in ("failure", "timed_out"):
        return None
    where = ", as on the base branch" if body.on_base else "; the agent has the failures"
    return f"check {body.name} {'failed' if body.state == 'failure' else 'took too long'}{where}", ""


def _settled(body: e.ChecksSettled, facts: SessionFacts | None, _me: SessionFacts) -> Line | None:
    good = facts is not None and facts.pr is not None and facts.pr.green(body.head) and not body.none
    return ("its checks passed", "") if good else None


def _review(body: e.ReviewSubmitted, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    what = {"approved": "approved", "changes_requested": "changes requested"}.get(body.verdict, "commented on")
    if body.write_access != WRITES:
        return f"{what} by somebody who may not write to the repository (text left out)", ""
    return f"{what} by {body.author}", body.body


def _comment(body: e.CommentAdded, _facts: SessionFacts | None, _me: SessionFacts) -> Line | None:
    if body.by_agent or body.review:
        return None
    if body.write_access != WRITES:
        return "a comment by somebody who may not write to the repository (text left out)", ""
    return f"a comment by {body.author}", body.body


def _not_landed(body: e.LandingFailed, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"could not land: {body.reason}", ""


def _collides(body: e.ConflictPredicted, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    more = f" and {len(body.files) - 3} more" if len(body.files) > 3 else ""
    return f"will collide with {body.other} on {', '.join(body.files[:3])}{more}", ""


def _conflicts(body: e.ConflictsSeen, _facts: SessionFacts | None, _me: SessionFacts) -> Line | None:
    return (f"conflicts with its base in {', '.join(body.files[:3])}; its agent is told", "") if body.files else None


def _escalated(body: e.Escalated, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"a person was called ({body.trigger}: {body.reason})", ""


def _offered(body: e.ActionOffered, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"a person is asked whether to {body.action} ({body.trigger})", ""


def _limit(body: e.AgentLimit, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    until = f" until {rfc3339(body.resets_at)[:16]}Z" if body.resets_at else ""
    return f"met its usage limit{until}; it goes on by itself", ""


def _budget(body: e.BudgetExceeded, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"over its budget: {body.spent} of {body.budget} ({body.scope})", ""


def _complete(_body: e.AllComplete, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return "with that, every session of the project is done", ""


def _opened(body: e.IssueOpened, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    name = body.key or f"#{body.number}"
    if body.write_access != WRITES:
        return f"issue {name} was opened by somebody who may not write to the repository (text left out)", ""
    return f"issue {name} was opened by {body.author}", body.title


def _issue_comment(body: e.IssueComment, _facts: SessionFacts | None, _me: SessionFacts) -> Line | None:
    if body.write_access != WRITES:
        return None
    return f"a comment by {body.author} on issue #{body.number}", body.body


def _issue(body: e.IssueChanged, _facts: SessionFacts | None, _me: SessionFacts) -> Line | None:
    return (f"issue #{body.number} is {body.state} now", "") if body.state else None


def _planned(body: e.PlanDrafted, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return (
        f"plan {body.plan} is made, with {len(body.tasks)} task{'' if len(body.tasks) == 1 else 's'}: get_plan shows it",
        "",
    )


def _no_plan(body: e.PlanFailed | e.PlanRefused, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    what = "could not be made" if isinstance(body, e.PlanFailed) else "cannot be applied as it is"
    return f"plan {body.plan} {what}: {body.error}", ""


def _applied(body: e.PlanApplied, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"plan {body.plan} is applied: its {len(body.issues)} tasks are issues now", ""


def _discarded(body: e.PlanDiscarded, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"plan {body.plan} was discarded", ""


def _fixed(body: e.FixEnded, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"the fixing run {body.fix} is over: {body.outcome}{f' ({body.reason})' if body.reason else ''}", ""


def _unread(body: e.ReadingFailed, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"{body.name} cannot be read: {body.reason}", ""


def _read_again(body: e.ReadingResumed, _facts: SessionFacts | None, _me: SessionFacts) -> Line:
    return f"{body.name} can be read again", ""


_LINES: Mapping[type[e.Body], Callable[[Any, SessionFacts | None, SessionFacts], Line | None]] = {
    e.AgentTurnEnded: _turn_ended,
    e.AgentDone: _done,
    e.AgentAsk: _ask,
    e.PermissionAsked: _permission,
    e.AgentExited: _exited,
    e.AgentLost: _lost,
    e.AgentLimit: _limit,
    e.SessionFailed: _failed,
    e.SessionStopped: _stopped,
    e.PrReady: _ready,
    e.PrMerged: _merged,
    e.PrClosed: _closed,
    e.CheckFinished: _check,
    e.ChecksSettled: _settled,
    e.ReviewSubmitted: _review,
    e.CommentAdded: _comment,
    e.LandingFailed: _not_landed,
    e.ConflictPredicted: _collides,
    e.ConflictsSeen: _conflicts,
    e.Escalated: _escalated,
    e.ActionOffered: _offered,
    e.BudgetExceeded: _budget,
    e.AllComplete: _complete,
    e.IssueOpened: _opened,
    e.IssueChanged: _issue,
    e.IssueComment: _issue_comment,
    e.PlanDrafted: _planned,
    e.PlanFailed: _no_plan,
    e.PlanRefused: _no_plan,
    e.PlanApplied: _applied,
    e.PlanDiscarded: _discarded,
    e.FixEnded: _fixed,
    e.ReadingFailed: _unread,
    e.ReadingResumed: _read_again,
}
