"""The recap of what happened since a time, in a few lines: merges, requests, failures, usage limits, moved base branches, restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.actor import DAEMON
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.protocols.records import record
from agent_orchestrator.protocols.text import one_line

MAX_RECAP_LINES = 7
"""The most lines of a recap."""
MAX_NAMES = 4
"""The most sessions that a line names; the rest is counted."""
MAX_EVENTS = 1000
"""The most events of each type that are read, the newest ones."""
RESTART_REASON = "the machine was restarted"
"""The reason of lost agents after a restart of the machine."""
ASKING_STATES = ("blocked", "waiting_input")

_EVENT_TYPES = (
    *(
        "pr-merged",
        "merge-requested",
        "agent-ask",
        "permission-asked",
        "permission-answered",
        "session-failed",
        "landing-failed",
    ),
    *("escalated", "effect-failed", "account-held", "account-released", "budget-exceeded", "base-moved"),
    *("agent-lost", "node-lost", "machine-woke", "daemon-started", "pr-opened", "reading-failed"),
)


@record
class RecapLine:
    """One thing that happened, or several of the same kind."""

    kind: str
    text: str
    sessions: tuple[str, ...] = ()


class Recap:
    """Builds the recap."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    async def since(self, time: float, project: str | None) -> dict[str, Any]:
        """Return what happened since a time, in the shape that the API promises."""
        events: list[Event] = []
        for kind in _EVENT_TYPES:
            events += await self.flow.store.events(0, MAX_EVENTS, kind=kind, newest=True)
        recent_events = [
            item for item in events if item.time >= time and (project is None or item.project in (None, project))
        ]
        lines = recap_lines(sorted(recent_events, key=lambda event: event.seq), self.flow.sessions, self.flow.clock())
        return {
            "since": rfc3339(time),
            "lines": [{"kind": item.kind, "text": item.text, "sessions": list(item.sessions)} for item in lines],
        }


def recap_lines(events: Sequence[Event], sessions: Mapping[str, SessionFacts], now: float) -> list[RecapLine]:
    """Return the lines, most important first; `events` are in order, `sessions` are as they are now."""
    line_functions: Iterable[Callable[[Sequence[Event], Mapping[str, SessionFacts], float], RecapLine | None]] = (
        _merged_line,
        _asked_line,
        _failed_line,
        _restarted_line,
        _limits_line,
        _budgets_line,
        _bases_line,
        _opened_line,
        _slept_line,
    )
    lines = [make_line(events, sessions, now) for make_line in line_functions]
    return [line for line in lines if line is not None][:MAX_RECAP_LINES]


def _merged_line(events: Sequence[Event], _sessions: Mapping[str, SessionFacts], _now: float) -> RecapLine | None:
    requested_by: dict[str, str] = {}
    sessions_by_person: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event.body, e.MergeRequested):
            requested_by[event.session or ""] = _person_name(event.actor)
        elif isinstance(event.body, e.PrMerged):
            person = requested_by.get(event.session or "") or _person_name(event.actor) or "the forge"
            sessions_by_person.setdefault(person, []).append(event.session or "")
    if not sessions_by_person:
        return None
    parts = [f"{_list_names(names)} by {person}" for person, names in sessions_by_person.items()]
    merged = [name for names in sessions_by_person.values() for name in names]
    return RecapLine("merged", f"{len(merged)} landed: {'; '.join(parts)}", tuple(merged))


def _person_name(actor: str) -> str:
    """Return the name of a person or token, "" for the daemon, and any other actor unchanged (`rule ci-failed`)."""
    kind, _, name = actor.partition(" ")
    if kind in ("local", "browser", "token"):
        return name or kind
    return "" if kind in (DAEMON, "") else actor


def _asked_line(events: Sequence[Event], sessions: Mapping[str, SessionFacts], _now: float) -> RecapLine | None:
    names = _sessions_that_asked(events)
    waiting = [name for name in names if name in sessions and sessions[name].activity.state in ASKING_STATES]
    if not names:
        return None
    if not waiting:
        return RecapLine(
            "asked", f"{_list_names(names)} asked, and {'was' if len(names) == 1 else 'all were'} answered", names
        )
    text = f"{_list_names(waiting)} asked you and {'waits' if len(waiting) == 1 else 'wait'}: ao answer"
    answered_count = len(names) - len(waiting)
    return RecapLine("asked", text + (f" ({answered_count} more answered)" if answered_count else ""), tuple(waiting))


def _sessions_that_asked(events: Sequence[Event]) -> tuple[str, ...]:
    """Return the sessions that asked a person; requests that a rule answered at once do not count."""
    unanswered: dict[str | None, bool] = {}
    sessions: list[str | None] = []
    for event in events:
        match event.body:
            case e.AgentAsk():
                sessions.append(event.session)
            case e.PermissionAsked():
                unanswered[event.session] = True
            case e.PermissionAnswered(by=answered_by) if (
                unanswered.pop(event.session, False) and answered_by == "person"
            ):
                sessions.append(event.session)
    return _distinct([*sessions, *unanswered])


def _failed_line(events: Sequence[Event], sessions: Mapping[str, SessionFacts], _now: float) -> RecapLine | None:
    last_errors: dict[str, str] = {}
    for event in events:
        match event.body:
            case e.SessionFailed(step, error):
                error_text = f"{step}: {error}"
            case e.LandingFailed(reason, cause) if cause != "called-off" and _is_still_rejected(
                sessions, event.session
            ):
                error_text = f"could not land: {reason}"
            case e.PrMerged():
                last_errors.pop(event.session or "", None)
                continue
            case e.Escalated(_, trigger, reason) if reason != e.OFFER_REASON:
                error_text = f"{trigger}: {reason}"
            case e.EffectFailed(intent, error):
                error_text = f"{intent}: {error}"
            case e.ReadingFailed(name, reason):
                error_text = f"{name} cannot be read: {reason}"
            case _:
                continue
        last_errors[event.session or event.project or "?"] = one_line(error_text, 90)
    if not last_errors:
        return None
    details = "; ".join(f"{name} ({error_text})" for name, error_text in list(last_errors.items())[:2])
    remainder = f"; and {len(last_errors) - 2} more" if len(last_errors) > 2 else ""
    return RecapLine("failed", f"{len(last_errors)} failed: {details}{remainder}", tuple(last_errors))


def _is_still_rejected(sessions: Mapping[str, SessionFacts], session: str | None) -> bool:
    """Return whether the session's merge is still rejected, as far as is known; a failure that was fixed since does not count."""
    facts = sessions.get(session or "")
    return facts is None or facts.pr is None or bool(facts.pr.merge_failure)


def _restarted_line(events: Sequence[Event], sessions: Mapping[str, SessionFacts], now: float) -> RecapLine | None:
    starts = [event for event in events if isinstance(event.body, e.DaemonStarted)]
    lost_events = [event for event in events if isinstance(event.body, e.AgentLost)]
    names = tuple(dict.fromkeys(event.session or "" for event in lost_events))
    nodes = _distinct(event.body.node for event in events if isinstance(event.body, e.NodeLost))
    restored_count = sum(1 for name in names if name in sessions and sessions[name].live)
    effect = f": {_session_count(len(names))} cut short, {restored_count} at work again" if names else ""
    if nodes:
        return RecapLine("restarted", f"node {_list_names(nodes)} was lost{effect}", names)
    if any(isinstance(event.body, e.AgentLost) and event.body.reason == RESTART_REASON for event in lost_events):
        return RecapLine(
            "restarted", f"the machine was restarted {_duration(lost_events[-1].time, now)} ago{effect}", names
        )
    if not starts:
        return (
            RecapLine(
                "restarted", f"{_session_count(len(names))} lost their terminal, {restored_count} at work again", names
            )
            if names
            else None
        )
    count_text = f"{len(starts)} times, last " if len(starts) > 1 else ""
    return RecapLine(
        "restarted", f"the daemon was started {count_text}{_duration(starts[-1].time, now)} ago{effect}", names
    )


def _limits_line(events: Sequence[Event], _sessions: Mapping[str, SessionFacts], now: float) -> RecapLine | None:
    """Return a line with each account that reached a usage limit: released, still held, or over."""
    held_until: dict[str, float] = {}
    released: dict[str, float] = {}
    for event in events:
        if isinstance(event.body, e.AccountHeld):
            held_until[event.body.account] = event.body.until
            released.pop(event.body.account, None)
        elif isinstance(event.body, e.AccountReleased) and event.body.account in held_until:
            released[event.body.account] = event.time
    if not held_until:
        return None
    parts = []
    for account, until in held_until.items():
        if account in released:
            parts.append(f"{account} met and over, work went on {_duration(released[account], now)} ago")
        elif until > now:
            parts.append(f"{account} met, for {_duration(now, until)} more")
        else:
            parts.append(f"{account} met, over since {_duration(until, now)}")
    return RecapLine("limits", f"limits: {'; '.join(parts)}")


def _budgets_line(events: Sequence[Event], _sessions: Mapping[str, SessionFacts], _now: float) -> RecapLine | None:
    exceeded = [event for event in events if isinstance(event.body, e.BudgetExceeded)]
    names = tuple(dict.fromkeys(event.session or event.project or "" for event in exceeded))
    return RecapLine("budgets", f"budget used up: {_list_names(names)}: ao usage", names) if names else None


def _bases_line(events: Sequence[Event], sessions: Mapping[str, SessionFacts], _now: float) -> RecapLine | None:
    """Report base branches that moved, except by the session's own merge and the commit that the session began at."""
    own_merges = {(event.session, event.body.commit) for event in events if isinstance(event.body, e.PrMerged)}
    heads: dict[str, set[str]] = {}
    names: dict[str, None] = {}
    for event in events:
        facts = sessions.get(event.session or "")
        if not isinstance(event.body, e.BaseMoved) or facts is None:
            continue
        first_commit = facts.workspace.base_commit if facts.workspace else ""
        if event.body.head != first_commit and (event.session, event.body.head) not in own_merges:
            heads.setdefault(f"{facts.base} of {facts.project}", set()).add(event.body.head)
            names[facts.id] = None
    if not heads:
        return None
    parts = [base if len(commits) == 1 else f"{base} ({len(commits)} times)" for base, commits in heads.items()]
    return RecapLine("bases", f"base moved: {_list_names(parts)}, for {_session_count(len(names))}", tuple(names))


def _opened_line(events: Sequence[Event], _sessions: Mapping[str, SessionFacts], _now: float) -> RecapLine | None:
    merged = _sessions_with(events, e.PrMerged)
    names = tuple(name for name in _sessions_with(events, e.PrOpened) if name not in merged)
    return RecapLine("opened", f"{len(names)} opened a pull request: {_list_names(names)}", names) if names else None


def _slept_line(events: Sequence[Event], _sessions: Mapping[str, SessionFacts], _now: float) -> RecapLine | None:
    sleeps: dict[float, float] = {}
    for event in events:
        if isinstance(event.body, e.MachineWoke):  # one for each live session
            sleeps[round(event.time, -1)] = event.body.seconds
    return RecapLine("slept", f"the machine slept for {_duration(0.0, sum(sleeps.values()))}") if sleeps else None


# -- text --------------------------------------------------------------------------------------------------------------


def _sessions_with(events: Sequence[Event], *kinds: type[e.Body]) -> tuple[str, ...]:
    return _distinct(event.session for event in events if isinstance(event.body, kinds))


def _distinct(names: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name))


def _list_names(names: Sequence[str]) -> str:
    remaining = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {remaining} more" if remaining > 0 else "")


def _session_count(count: int) -> str:
    return f"{count} session{'' if count == 1 else 's'}"


def _duration(earlier: float, now: float) -> str:
    seconds = int(max(0.0, now - earlier))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= (2 * size if unit == "d" else size):
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
