"""What happened while nobody looked, in a few lines: what landed, who asks, what failed, which limits were met, what moved, restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.actor import DAEMON
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.protocols.records import record
from agent_orchestrator.protocols.text import one_line

LINES = 7
"""At most: with the words above them as many as one looks at."""
NAMED = 4
"""Sessions that a line names; of the others it says how many."""
READ = 1000
"""Of a kind of event that are looked at, the newest."""
RESTARTED = "the machine was restarted"
"""Why agents are lost, then."""
ASKING = ("blocked", "waiting_input")

_KINDS = (
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
class Line:
    """One thing that happened, or several alike."""

    kind: str
    text: str
    sessions: tuple[str, ...] = ()


class Recap:
    """Looks back."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    async def since(self, time: float, project: str | None) -> dict[str, Any]:
        """What happened since then, in the shape that the API promises."""
        found: list[Event] = []
        for kind in _KINDS:
            found += await self.flow.store.events(0, READ, kind=kind, newest=True)
        news = [one for one in found if one.time >= time and (project is None or one.project in (None, project))]
        lines = told(sorted(news, key=lambda event: event.seq), self.flow.sessions, self.flow.clock())
        return {
            "since": rfc3339(time),
            "lines": [{"kind": one.kind, "text": one.text, "sessions": list(one.sessions)} for one in lines],
        }


def told(events: Sequence[Event], sessions: Mapping[str, SessionFacts], now: float) -> list[Line]:
    """The most important first; `events` in order, `sessions` as they are now."""
    ways: Iterable[Callable[[Sequence[Event], Mapping[str, SessionFacts], float], Line | None]] = (
        _landed,
        _asked,
        _failed,
        _restarted,
        _limits,
        _spent,
        _bases,
        _opened,
        _slept,
    )
    found = [way(events, sessions, now) for way in ways]
    return [line for line in found if line is not None][:LINES]


def _landed(events: Sequence[Event], _sessions: Mapping[str, SessionFacts], _now: float) -> Line | None:
    asked: dict[str, str] = {}
    by: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event.body, e.MergeRequested):
            asked[event.session or ""] = _person(event.actor)
        elif isinstance(event.body, e.PrMerged):
            who = asked.get(event.session or "") or _person(event.actor) or "the forge"
            by.setdefault(who, []).append(event.session or "")
    if not by:
        return None
    parts = [f"{_names(names)} by {who}" for who, names in by.items()]
    every = [name for names in by.values() for name in names]
    return Line("merged", f"{len(every)} landed: {'; '.join(parts)}", tuple(every))


def _person(actor: str) -> str:
    """Whom the log names, as one says it; nobody: the daemon did it for somebody else."""
    kind, _, name = actor.partition(" ")
    if kind in ("local", "browser", "token"):
        return name or kind
    return "" if kind in (DAEMON, "") else actor


def _asked(events: Sequence[Event], sessions: Mapping[str, SessionFacts], _now: float) -> Line | None:
    names = _who_asked(events)
    waiting = [name for name in names if name in sessions and sessions[name].activity.state in ASKING]
    if not names:
        return None
    if not waiting:
        return Line("asked", f"{_names(names)} asked, and {'was' if len(names) == 1 else 'all were'} answered", names)
    still = f"{_names(waiting)} asked you and {'waits' if len(waiting) == 1 else 'wait'}: ao answer"
    others = len(names) - len(waiting)
    return Line("asked", still + (f" ({others} more answered)" if others else ""), tuple(waiting))


def _who_asked(events: Sequence[Event]) -> tuple[str, ...]:
    """Those who asked a person; what a rule allowed or refused at once was nobody's to answer."""
    open_: dict[str | None, bool] = {}
    asked: list[str | None] = []
    for event in events:
        match event.body:
            case e.AgentAsk():
                asked.append(event.session)
            case e.PermissionAsked():
                open_[event.session] = True
            case e.PermissionAnswered(by=by) if open_.pop(event.session, False) and by == "person":
                asked.append(event.session)
    return _distinct([*asked, *open_])


def _failed(events: Sequence[Event], sessions: Mapping[str, SessionFacts], _now: float) -> Line | None:
    last: dict[str, str] = {}
    for event in events:
        match event.body:
            case e.SessionFailed(step, error):
                why = f"{step}: {error}"
            case e.LandingFailed(reason, cause) if cause != "called-off" and _is_refused(sessions, event.session):
                why = f"could not land: {reason}"
            case e.PrMerged():
                last.pop(event.session or "", None)
                continue
            case e.Escalated(_, trigger, reason) if reason != e.OFFERED:
                why = f"{trigger}: {reason}"
            case e.EffectFailed(intent, error):
                why = f"{intent}: {error}"
            case e.ReadingFailed(name, reason):
                why = f"{name} cannot be read: {reason}"
            case _:
                continue
        last[event.session or event.project or "?"] = one_line(why, 90)
    if not last:
        return None
    shown = "; ".join(f"{name} ({why})" for name, why in list(last.items())[:2])
    more = f"; and {len(last) - 2} more" if len(last) > 2 else ""
    return Line("failed", f"{len(last)} failed: {shown}{more}", tuple(last))


def _is_refused(sessions: Mapping[str, SessionFacts], session: str | None) -> bool:
    """Does it still not land, as far as anybody knows? What was mended since is no failure any more."""
    facts = sessions.get(session or "")
    return facts is None or facts.pr is None or bool(facts.pr.refused)


def _restarted(events: Sequence[Event], sessions: Mapping[str, SessionFacts], now: float) -> Line | None:
    starts = [event for event in events if isinstance(event.body, e.DaemonStarted)]
    lost = [event for event in events if isinstance(event.body, e.AgentLost)]
    names = tuple(dict.fromkeys(event.session or "" for event in lost))
    nodes = _distinct(event.body.node for event in events if isinstance(event.body, e.NodeLost))
    back = sum(1 for name in names if name in sessions and sessions[name].live)
    cut = f": {_sessions(len(names))} cut short, {back} at work again" if names else ""
    if nodes:
        return Line("restarted", f"node {_names(nodes)} was lost{cut}", names)
    if any(isinstance(event.body, e.AgentLost) and event.body.reason == RESTARTED for event in lost):
        return Line("restarted", f"the machine was restarted {_ago(lost[-1].time, now)} ago{cut}", names)
    if not starts:
        return (
            Line("restarted", f"{_sessions(len(names))} lost their terminal, {back} at work again", names)
            if names
            else None
        )
    times = f"{len(starts)} times, last " if len(starts) > 1 else ""
    return Line("restarted", f"the daemon was started {times}{_ago(starts[-1].time, now)} ago{cut}", names)


def _limits(events: Sequence[Event], _sessions: Mapping[str, SessionFacts], now: float) -> Line | None:
    met: dict[str, float] = {}
    released: dict[str, float] = {}
    held: Counter[str] = Counter()
    for event in events:
        if isinstance(event.body, e.AccountHeld):
            met[event.body.account] = event.body.until
            released.pop(event.body.account, None)
            held[event.body.account] += 1
        elif isinstance(event.body, e.AccountReleased) and event.body.account in met:
            released[event.body.account] = event.time
    if not met:
        return None
    parts = []
    for account, until in met.items():
        if account in released:
            parts.append(f"{account} met and over, work went on {_ago(released[account], now)} ago")
        elif until > now:
            parts.append(f"{account} met, for {_ago(now, until)} more")
        else:
            parts.append(f"{account} met, over since {_ago(until, now)}")
    return Line("limits", f"limits: {'; '.join(parts)}")


def _spent(events: Sequence[Event], _sessions: Mapping[str, SessionFacts], _now: float) -> Line | None:
    found = [event for event in events if isinstance(event.body, e.BudgetExceeded)]
    names = tuple(dict.fromkeys(event.session or event.project or "" for event in found))
    return Line("budgets", f"budget used up: {_names(names)}: ao usage", names) if names else None


def _bases(events: Sequence[Event], sessions: Mapping[str, SessionFacts], _now: float) -> Line | None:
    """Bases that moved under somebody: not by his own landing, and the commit that he began at was no move."""
    own = {(event.session, event.body.commit) for event in events if isinstance(event.body, e.PrMerged)}
    heads: dict[str, set[str]] = {}
    names: dict[str, None] = {}
    for event in events:
        facts = sessions.get(event.session or "")
        if not isinstance(event.body, e.BaseMoved) or facts is None:
            continue
        begun_at = facts.place.base_commit if facts.place else ""
        if event.body.head != begun_at and (event.session, event.body.head) not in own:
            heads.setdefault(f"{facts.base} of {facts.project}", set()).add(event.body.head)
            names[facts.id] = None
    if not heads:
        return None
    parts = [base if len(moved) == 1 else f"{base} ({len(moved)} times)" for base, moved in heads.items()]
    return Line("bases", f"base moved: {_names(parts)}, for {_sessions(len(names))}", tuple(names))


def _opened(events: Sequence[Event], _sessions: Mapping[str, SessionFacts], _now: float) -> Line | None:
    landed = _of(events, e.PrMerged)
    names = tuple(name for name in _of(events, e.PrOpened) if name not in landed)
    return Line("opened", f"{len(names)} opened a pull request: {_names(names)}", names) if names else None


def _slept(events: Sequence[Event], _sessions: Mapping[str, SessionFacts], _now: float) -> Line | None:
    longest: dict[float, float] = {}
    for event in events:
        if isinstance(event.body, e.MachineWoke):  # one for each live session
            longest[round(event.time, -1)] = event.body.seconds
    return Line("slept", f"the machine slept for {_ago(0.0, sum(longest.values()))}") if longest else None


# -- words ---------------------------------------------------------------------------------------------------------------


def _of(events: Sequence[Event], *kinds: type[e.Body]) -> tuple[str, ...]:
    return _distinct(event.session for event in events if isinstance(event.body, kinds))


def _distinct(names: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name))


def _names(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _sessions(count: int) -> str:
    return f"{count} session{'' if count == 1 else 's'}"


def _ago(then: float, now: float) -> str:
    seconds = int(max(0.0, now - then))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= (2 * size if unit == "d" else size):
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
