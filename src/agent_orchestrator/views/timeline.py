"""A session's story in words: what was seen, decided, sent and acknowledged, what its agent said and what people did. Pure.

`Story` takes events one by one and keeps an entry for each that matters to a person; `sentence` says how things stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import Message, SessionFacts, hold_key
from agent_orchestrator.core.pull_request import BAD, GOOD, NOT_SET_UP
from agent_orchestrator.core.reactions import message_id
from agent_orchestrator.core.rules import CHECK_NOT_SET_UP, Rule
from agent_orchestrator.core.status import Status

Kind = Literal["seen", "decided", "sent", "acknowledged", "said", "did"]

LONGEST_DETAIL = 4000
"""Characters of what was said or sent that an entry has."""

LEFT_OUT: frozenset[type[e.Body]] = frozenset(
    {
        e.ProjectRegistered,
        e.ProjectRemoved,
        e.CommandsTrusted,
        e.CommandsProposed,
        e.ConfigurationChanged,
        e.ConfigurationBroken,
        e.ClockSetBack,
        e.MachineWoke,
        e.TaskCreated,
        e.SessionAdmitted,
        e.WorkPublished,
        e.AgentConversation,
        e.AgentActivity,
        e.AgentOutput,
        e.AgentUsage,
        e.AgentReportInvalid,
        e.PermissionAllowed,
        e.PermissionWithdrawn,
        e.BaseMoved,
        e.CheckStarted,
        e.CheckGone,
        e.ResolveRequested,
        e.PeopleRequested,
        e.CommandRequested,
        e.SpawnRequested,
        e.AllComplete,
        e.IssueOpened,
        e.IssueTracked,
        e.IssueChanged,
        e.LabelAdded,
        e.LabelRemoved,
        e.IssueComment,
        e.IssuePlanned,
        e.DigestSent,
        e.FixStarted,
        e.FixMeasured,
        e.FixAgentStarted,
        e.FixGroupSettled,
        e.FixEnded,
        e.PlanRequested,
        e.PlanDrafted,
        e.PlanFailed,
        e.PlanChanged,
        e.PlanApplyRequested,
        e.PlanApplied,
        e.PlanRefused,
        e.PlanDiscarded,
        e.NodeJoined,
        e.NodeUnreachable,
        e.NodeLost,
        e.DrainRequested,
        e.DrainEnded,
        e.WorkCheckpointed,
        e.TimerDue,
        e.NotificationHeld,
        e.NotificationSettled,
        e.NotifierRecovered,
        e.ReadingFailed,
        e.ReadingResumed,
        e.QuietHoursEnded,
        e.SignedIn,
        e.SignedOut,
        e.SignInRefused,
        e.LoginLinkMade,
        e.TokenMade,
        e.TokenRevoked,
        e.AccessRefused,
        e.EnvironmentRead,
        e.SettingChanged,
        e.PluginLoaded,
        e.ShutdownRequested,
        e.ActionTaken,
        e.DaemonStarted,
        e.DaemonStopped,
        e.Unknown,
    }
)
"""Kinds of events that say nothing to a person who looks at a session, or say it by another event."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened, in words."""

    seq: int
    at: float
    kind: Kind
    title: str
    detail: str = ""
    trigger: str = ""
    message: str = ""
    by: str = "daemon"


class Story:
    """What happened to one session, oldest first."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.seq = 0
        self._checks: dict[tuple[str, str], str] = {}
        self._sent: list[str] = []
        self._triggers: dict[str, str] = {}
        self._step = ""
        self._conflicted = False

    def add(self, event: Event, retries: Mapping[str, int | None]) -> None:
        """Take one more event; `retries`: rule → how often it may try."""
        self.seq = max(self.seq, event.seq)
        for words in self._words(event, retries):
            kind = "decided" if words.kind == "did" and event.source.startswith("rule ") else words.kind
            entry = replace(
                words,
                seq=event.seq,
                at=event.time,
                kind=kind,
                by=words.by or _by(event),
                detail=words.detail[:LONGEST_DETAIL],
                trigger=words.trigger or self._triggers.get(words.message, ""),
            )
            if entry.kind == "decided" and entry.message:
                self._before_its_message(entry)
            else:
                self.entries.append(entry)

    def _before_its_message(self, entry: Entry) -> None:
        """What was decided comes before what was sent because of it, although both were recorded together."""
        self._triggers[entry.message] = entry.trigger
        place = len(self.entries)
        while place and self.entries[place - 1].message == entry.message:
            place -= 1
            self.entries[place] = replace(self.entries[place], trigger=entry.trigger)
        self.entries.insert(place, entry)

    def _words(self, event: Event, retries: Mapping[str, int | None]) -> list[Entry]:
        body = event.body
        match body:
            case e.CheckFinished():
                self._checks[body.head, body.name] = body.state
            case e.ChecksSettled() if not body.none:
                states = [state for (head, _), state in self._checks.items() if head == body.head]
                good = bool(states) and all(state in GOOD for state in states)
                return [_entry("seen", f"Checks passed at {_short(body.head)}", by="checks")] if good else []
            case e.ConflictsSeen():
                was, self._conflicted = self._conflicted, bool(body.files)
                if was == self._conflicted and not body.files:
                    return []
            case e.AgentProgress():
                before, self._step = self._step, body.step or self._step
                return [_entry("said", body.step, by="agent")] if body.step and body.step != before else []
            case e.MessageDelivered():
                self._sent.append(body.message)
            case e.AgentAck():
                taken = body.message or (self._sent[0] if self._sent else "")
                if taken in self._sent:
                    self._sent.remove(taken)
                return [_entry("acknowledged", "The agent took the message up", message=taken, by="agent")]
            case e.Reacted():
                of = f" of {most}" if (most := retries.get(body.rule)) else ""
                title = f"Rule {body.rule}: {body.action}, attempt {body.attempt}{of}"
                sends = body.action in ("send-to-agent", "restart")
                message = message_id(event.key.rpartition(":")[0]) if sends else ""
                known = any(one.message == message for one in self.entries[-4:]) if message else False
                return [_entry("decided", title, body.detail, body.trigger, message if known else "")]
        make = _WORDS.get(type(body))
        found = make(body) if make else None
        return [found] if found else []


def entry_json(entry: Entry) -> dict[str, Any]:
    """An entry in the shape that the API promises."""
    return {
        "seq": entry.seq,
        "at": rfc3339(entry.at),
        "kind": entry.kind,
        "title": entry.title,
        "detail": entry.detail or None,
        "trigger": entry.trigger or None,
        "message": entry.message or None,
        "by": entry.by,
    }


def _by(event: Event) -> str:
    """Who told it."""
    source = event.source
    if source in ("spool", "transcript", "protocol", "screen"):
        return "agent"
    return source or "daemon"


def _entry(kind: Kind, title: str, detail: str = "", trigger: str = "", message: str = "", by: str = "") -> Entry:
    return Entry(0, 0.0, kind, title, detail, trigger, message, by)


# -- The words -------------------------------------------------------------------------------------------------------------


def _short(commit: str) -> str:
    return commit[:7]


def _some(names: Sequence[str], most: int = 3) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _first(text: str) -> str:
    return text.strip().partition("\n")[0]


def _check(body: e.CheckFinished) -> Entry | None:
    if body.state == "flaky":
        return _entry(
            "seen", f"{body.name} is flaky: it failed, and passed on the same commit", body.summary, by="checks"
        )
    if body.state == NOT_SET_UP:
        return _entry(
            "seen", f"{body.name}: environment not set up: {body.reason}", body.summary, CHECK_NOT_SET_UP, by="checks"
        )
    if body.state not in BAD or body.state == "cancelled":
        return None
    if body.on_base:
        where = "at the branch point; since fixed on the base branch" if body.fixed_since else "on the base branch"
        return _entry("seen", f"CI failed on {body.name}, as {where}", body.summary, by="checks")
    how = "CI timed out on" if body.state == "timed_out" else "CI failed on"
    return _entry("seen", f"{how} {body.name}", body.summary, "ci-failed", by="checks")


def _review(body: e.ReviewSubmitted) -> Entry:
    verdicts = {"approved": "approved", "changes_requested": "asked for changes", "commented": "commented"}
    trigger = "changes-requested" if body.verdict == "changes_requested" else ""
    what = f"{_name(body.author)} {verdicts.get(body.verdict, body.verdict)}"
    return _entry("did" if body.author == "person" else "seen", what, body.body, trigger, by=body.author)


def _comment(body: e.CommentAdded) -> Entry:
    where = f" on {body.path}{f':{body.line}' if body.line else ''}" if body.path else ""
    if body.by_agent:
        return _entry("said", f"Answered a comment{where}", body.body, by="agent")
    if body.author == "person":
        return _entry("did", f"You commented{where}", body.body, "review-comment", by=body.author)
    return _entry("seen", f"Comment by {body.author}{where}", body.body, "review-comment", by=body.author)


def _name(author: str) -> str:
    return "You" if author == "person" else author


def _exited(body: e.AgentExited) -> Entry:
    how = f"was killed by signal {body.signal}" if body.signal else f"exited with {body.code}"
    if body.code is None and not body.signal:
        how = "ended, nobody saw how"
    how += f": {body.reason}" if body.reason else ""
    trigger = "agent-exited" if body.signal or body.code != 0 else ""
    return _entry("seen", f"The agent {how}", body.output, trigger)


def _queued(body: e.MessageQueued) -> Entry | None:
    if body.task:
        return None
    if body.sender.startswith("rule ") or body.sender in ("daemon", "review"):
        held = f"; it waits for your word: {body.hold}" if body.hold else ""
        return _entry("sent", f"Message queued for the agent{held}", body.text, message=body.message)
    return _entry("did", f"{_name(body.sender)} wrote to the agent", body.text, message=body.message, by=body.sender)


def _answered(body: e.PermissionAnswered) -> Entry:
    verb = {"allow": "Allowed", "always": "Allowed for good", "deny": "Refused"}.get(body.decision, body.decision)
    what = " ".join(part for part in (body.tool, body.command) if part)
    return _entry("did", f"{verb}{f': {_first(what)}' if what else ''}", body.detail, "agent-blocked", by=body.by)


def _merged(body: e.PrMerged) -> Entry:
    left = f"not committed, and kept: {_some(body.left)}" if body.left else ""
    return _entry("seen", f"Merged as {_short(body.commit)}", left, "pr-merged")


def _limit(body: e.AgentLimit) -> Entry:
    until = f"; it ends at {rfc3339(body.resets_at)}" if body.resets_at else ""
    return _entry("seen", f"The usage limit is reached{until}", trigger="usage-limit")


def _command(body: e.CommandFinished) -> Entry:
    how = "was ended by its time limit" if body.code is None else f"ended with {body.code}"
    return _entry("seen", f"The command of rule {body.rule} {how}", body.output)


def _launched(body: e.AgentLaunched) -> Entry:
    return _entry("seen", "The agent started again, in the same conversation" if body.resumed else "The agent started")


def _turn(body: e.AgentTurnEnded) -> Entry | None:
    return _entry("said", _first(body.text), body.text, by="agent") if body.text.strip() else None


def _cleared(body: e.ConflictCleared) -> Entry:
    left = f" but for {_some(body.files)}" if body.files else ""
    return _entry("seen", f"No conflict with {body.other} any more{left}", trigger="conflict-predicted")


def _opened(body: e.PrOpened) -> Entry:
    return _entry("seen", f"Pull request #{body.number} opened{', a draft' if body.draft else ''}", body.title)


def _judged(body: e.AgentReview) -> Entry:
    return _entry("said", f"Judged the change: {body.verdict.replace('_', ' ')}", body.body, by="agent")


def _conflicts(body: e.ConflictsSeen) -> Entry:
    if not body.files:
        return _entry("seen", "The conflicts with the base are gone", by="git")
    return _entry("seen", f"Conflicts with the base in {_some(body.files)}", "", "merge-conflicts", by="git")


def _permission(body: e.PermissionAsked) -> Entry:
    what = f"{body.tool}: {_first(body.command)}" if body.command else body.tool
    return _entry("said", f"Asks for permission: {what}", body.reason or body.command, "agent-blocked", by="agent")


_TAKEN = {"typed": "typed into", "attached": "opened"}
_WORDS: Mapping[type[e.Body], Callable[[Any], Entry | None]] = {
    e.SessionCreated: lambda b: _entry("did", f"Started: {b.title}", b.prompt),
    e.SessionReassigned: lambda b: _entry("did", f"Given to {b.profile or b.agent}"),
    e.SessionWaiting: lambda b: _entry("seen", f"Waits for {b.reason}"),
    e.SessionFailed: lambda b: _entry("seen", f"{b.step} failed: {_first(b.error)}", b.remedy),
    e.WorkspaceCreated: lambda b: _entry("seen", f"Workspace made on {b.branch}", b.path),
    e.WorkPushed: lambda b: _entry("seen", f"Pushed {_short(b.head)}"),
    e.HeadMoved: lambda b: _entry("seen", f"Committed {_short(b.head)}", by="agent"),
    e.BaseChanged: lambda b: _entry("seen", f"The change is for {b.base} now", b.reason),
    e.BranchRebased: lambda b: _entry("seen", f"Rebased onto {_short(b.onto)}"),
    e.RebaseRefused: lambda b: _entry("seen", "Could not be rebased", b.reason, "merge-conflicts"),
    e.StopRequested: lambda b: _entry("did", "Asked to stop" + (", keeping the workspace" if b.keep else "")),
    e.WorkRescued: lambda b: _entry("seen", f"Unsaved work saved as {b.ref}", _some(b.what, 10)),
    e.SessionStopped: lambda b: _entry("seen", "Stopped; its work is saved", "\n".join(b.saved)),
    e.RestoreRequested: lambda _: _entry("did", "Brought back"),
    e.CommandRun: lambda b: _entry("did", "Ran a command in its workspace", " ".join(b.command), by="person"),
    e.TerminalTaken: lambda b: _entry("did", f"Its terminal was {_TAKEN.get(b.how, b.how)}", by="person"),
    e.SessionPlaced: lambda b: _entry("decided", f"Lives on node {b.node}"),
    e.SessionUnseen: lambda b: _entry("seen", f"Node {b.node} cannot be reached", b.reason),
    e.SessionSeen: lambda b: _entry("seen", f"Node {b.node} is there again"),
    e.MoveRequested: lambda b: _entry("decided", f"Is to leave node {b.node}", b.reason),
    e.SessionDisplaced: lambda b: _entry("seen", f"Left node {b.node}", b.reason),
    e.AgentLaunched: _launched,
    e.AgentTurnEnded: _turn,
    e.PermissionAsked: _permission,
    e.AgentLimit: _limit,
    e.AgentAsk: lambda b: _entry("said", f"Asks: {_first(b.question)}", b.question, "agent-needs-input", by="agent"),
    e.AgentDone: lambda b: _entry(
        "said", f"Done{f': {_first(b.summary)}' if b.summary else ''}", b.summary, by="agent"
    ),
    e.AgentReview: _judged,
    e.AgentReport: lambda b: _entry("said", f"Reported {b.name}", by="agent"),
    e.AgentExited: _exited,
    e.AgentLost: lambda b: _entry("seen", f"The agent is gone: {b.reason}", trigger="agent-exited"),
    e.AgentStopped: lambda _: _entry("seen", "The agent was stopped"),
    e.MessageQueued: _queued,
    e.MessageHeld: lambda b: _entry("sent", f"The message waits: {b.reason}", message=b.message),
    e.MessageReleased: lambda b: _entry("did", "Let the message through", message=b.message),
    e.MessageDelivered: lambda b: _entry("sent", "Message delivered", message=b.message),
    e.MessageFailed: lambda b: _entry("sent", f"The message was not delivered: {b.reason}", message=b.message),
    e.PermissionAnswered: _answered,
    e.PrOpened: _opened,
    e.PrReady: lambda _: _entry("seen", "The pull request is ready for review"),
    e.PrChanged: lambda b: _entry("seen", "The pull request changed", b.blocked or b.title),
    e.PrClosed: lambda b: _entry("seen", "The pull request was closed", b.reason, "pr-closed"),
    e.PrMerged: _merged,
    e.ConflictsSeen: _conflicts,
    e.ChecksRequested: lambda b: _entry("did", f"Asked for the checks to run again at {_short(b.head)}"),
    e.CheckFinished: _check,
    e.ChecksByHand: lambda b: _entry("seen", f"No check runs at {_short(b.head)} until somebody asks for it"),
    e.ReviewSubmitted: _review,
    e.ReviewChanged: lambda b: _entry("seen", f"A review counts as {b.verdict.replace('_', ' ')} now"),
    e.ThreadSettled: lambda b: _entry("seen", "A discussion was " + ("resolved" if b.resolved else "taken up again")),
    e.PeopleAsked: lambda b: _entry("seen", f"{_some(b.people)} asked to review"),
    e.CommentAdded: _comment,
    e.MergeRequested: lambda b: _entry("did", f"Asked to merge ({b.strategy}{', forced' if b.force else ''})"),
    e.LandingWaits: lambda b: _entry("seen", f"Landing waits for {b.reason}") if b.reason else None,
    e.LandingFailed: lambda b: _entry("seen", f"Not landed: {_first(b.reason)}", b.reason),
    e.ConflictPredicted: lambda b: _entry(
        "seen", f"Will conflict with {b.other}: {_some(b.files)}", "", "conflict-predicted"
    ),
    e.ConflictCleared: _cleared,
    e.Escalated: lambda b: _entry("decided", f"You were called: {b.reason}", "", b.trigger),
    e.ActionOffered: lambda b: _entry("decided", f"Offered to you: {b.action}", b.text, b.trigger),
    e.OfferAnswered: lambda b: _entry("did", "Took the offer" if b.decision == "allow" else "Refused the offer"),
    e.OfferWithdrawn: lambda _: _entry("seen", "What you were asked for has settled itself"),
    e.CommandFinished: _command,
    e.ReviewRequested: lambda b: _entry("decided", f"{b.reviewer} is asked to judge {_short(b.head)}"),
    e.AccountHeld: lambda b: _entry(
        "decided",
        f"No session of {hold_key(b.account, b.model)} goes on before {rfc3339(b.until)}",
        b.reason,
        "usage-limit",
    ),
    e.AccountReleased: lambda b: _entry(
        "decided", f"{hold_key(b.account, b.model)} is held no more", b.reason, "usage-limit"
    ),
    e.StartPutOff: lambda b: _entry("seen", f"Waits again, for {b.reason}"),
    e.BudgetRaised: lambda b: _entry(
        "did", f"Raised the {b.scope}'s budget of {b.budget} by as much again", "", "budget-exceeded"
    ),
    e.BudgetExceeded: lambda b: _entry(
        "seen", f"The {b.scope}'s budget of {b.budget} is spent: {b.spent}", "", "budget-exceeded"
    ),
    e.NotifierFailing: lambda b: _entry("seen", f"You could not be told by {b.notifier}: {_first(b.error)}", b.remedy),
    e.AnswerLinkUsed: lambda b: _entry("did", f"Answered from a notification: {b.verb}", f"by {b.by}"),
    e.Notified: lambda b: _entry("sent", f"You were told: {b.title}", b.message, b.trigger),
    e.EffectFailed: lambda b: _entry("seen", f"{b.intent.partition(':')[0]} was given up: {_first(b.error)}", b.remedy),
    e.EffectDelayed: lambda b: _entry("seen", f"{b.intent.partition(':')[0]} waits: {_first(b.error)}", b.remedy),
}
"""Kind of event → its words, where they do not depend on what came before."""

WORDED = frozenset({*_WORDS, e.ChecksSettled, e.AgentProgress, e.AgentAck, e.Reacted})
"""Kinds of events that a story tells of."""

# -- One sentence ------------------------------------------------------------------------------------------------------------

_TROUBLES = {"ci_failed": "ci-failed", "conflicted": "merge-conflicts", "changes_requested": "changes-requested"}
_NOUNS = {"ci-failed": "log", "changes-requested": "comments", "review-comment": "comments", "merge-conflicts": "files"}


def sentence(
    facts: SessionFacts, status: Status, entries: Sequence[Entry], rules: Sequence[Rule], hour: Callable[[float], str]
) -> str:
    """How a session stands: the trouble that is being worked on and how far that is, or else its status."""
    trigger = _trouble(facts, status)
    seen = _seen(facts, trigger, entries) if trigger else ""
    if not trigger or not seen:
        return status.why[:1].upper() + status.why[1:]
    return f"{seen}; {', '.join(_so_far(facts, trigger, entries, rules, hour))}"


def _trouble(facts: SessionFacts, status: Status) -> str:
    """What the agent is to mend: by the status, or while it is at work by the episode that lasts."""
    if status.name in _TROUBLES:
        return _TROUBLES[status.name]
    if status.name not in ("working", "starting", "stuck", "ci_running", "limited"):
        return ""
    lasting = [(one.since, name) for name, one in facts.episodes.items() if name in _NOUNS and one.attempts]
    return max(lasting)[1] if lasting else ""


def _seen(facts: SessionFacts, trigger: str, entries: Sequence[Entry]) -> str:
    failing = [run.name for run in facts.pr.failing(facts.head)] if facts.pr else []
    if trigger == "ci-failed" and failing:
        return f"CI failed on {_some(failing)}"
    found = [entry.title for entry in entries if entry.trigger == trigger and entry.kind in ("seen", "did")]
    return found[-1] if found else ""


def _so_far(
    facts: SessionFacts, trigger: str, entries: Sequence[Entry], rules: Sequence[Rule], hour: Callable[[float], str]
) -> list[str]:
    episode = facts.episodes.get(trigger)
    rule = next((one for one in rules if one.trigger == trigger), None)
    sent = [one.message for one in entries if one.kind == "decided" and one.trigger == trigger and one.message]
    message = next((one for one in facts.messages if sent and one.id == sent[-1]), None)
    parts = _fate(message, _NOUNS[trigger], hour) if message else []
    if episode and episode.attempts:
        of = f" of {rule.retries}" if rule and rule.retries else ""
        parts.append(f"attempt {episode.attempts}{of}")
    called = [entry.at for entry in entries if entry.title.startswith("You were called") and entry.trigger == trigger]
    if episode and episode.escalated:
        parts.append(f"you were called {hour(called[-1])}" if called else "you were called")
    return parts or ["nothing was sent to the agent yet"]


def _fate(message: Message, noun: str, hour: Callable[[float], str]) -> list[str]:
    if message.needs_word and message.pending:
        return [f"{noun} held for your word"]
    if message.state == "failed" and message.delivered_at is not None:
        return [f"{noun} sent {hour(message.delivered_at)}, but {message.reason}"]
    if message.state == "failed":
        return [f"{noun} not delivered: {message.reason}"]
    if message.delivered_at is None and message.acknowledged_at is None:
        return [f"{noun} waits to be sent{f': {message.reason}' if message.reason else ''}"]
    sent = message.delivered_at or message.acknowledged_at or 0.0
    taken = [f"acknowledged {hour(message.acknowledged_at)}"] if message.acknowledged_at else []
    return [f"{noun} sent {hour(sent)}", *taken]
