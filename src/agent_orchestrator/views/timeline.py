"""The timeline of a session: what was seen, decided, sent and acknowledged, what its agent said and what people did. Pure.

`Story` takes events one by one and keeps an entry for each that matters to a person; `state_sentence` says in one sentence
what the state is. Events without an entry are in `TYPES_WITHOUT_ENTRY`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import Message, SessionFacts, hold_key
from agent_orchestrator.core.pull_request import FAILED_STATES, NOT_SET_UP, PASSING_STATES
from agent_orchestrator.core.reactions import message_id
from agent_orchestrator.core.rules.model import CHECK_NOT_SET_UP, Rule
from agent_orchestrator.core.status import Status

EntryKind = Literal["seen", "decided", "sent", "acknowledged", "said", "did"]

MAX_DETAIL_LENGTH = 4000
"""The most characters of a message or text that an entry has."""

TYPES_WITHOUT_ENTRY: frozenset[type[e.Body]] = frozenset(
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
"""Types of events that have no entry, because they mean nothing to a person who reads a session or another event says the same."""


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One thing that happened, in words."""

    seq: int
    at: float
    kind: EntryKind
    title: str
    detail: str = ""
    trigger: str = ""
    message: str = ""
    by: str = "daemon"


class Timeline:
    """The entries of one session's events, oldest first."""

    def __init__(self) -> None:
        self.entries: list[TimelineEntry] = []
        self.seq = 0
        self._checks: dict[tuple[str, str], str] = {}
        self._unacknowledged: list[str] = []
        self._triggers: dict[str, str] = {}
        self._step = ""
        self._conflicted = False

    def add(self, event: Event, retries: Mapping[str, int | None]) -> None:
        """Add the entries of one more event; `retries` has for each rule how often it may try."""
        self.seq = max(self.seq, event.seq)
        for draft in self._entries_of(event, retries):
            kind = "decided" if draft.kind == "did" and event.source.startswith("rule ") else draft.kind
            entry = replace(
                draft,
                seq=event.seq,
                at=event.time,
                kind=kind,
                by=draft.by or _author_of(event),
                detail=draft.detail[:MAX_DETAIL_LENGTH],
                trigger=draft.trigger or self._triggers.get(draft.message, ""),
            )
            if entry.kind == "decided" and entry.message:
                self._insert_before_message(entry)
            else:
                self.entries.append(entry)

    def _insert_before_message(self, entry: TimelineEntry) -> None:
        """Insert a decision before the message sent because of it, although both events were recorded together."""
        self._triggers[entry.message] = entry.trigger
        index = len(self.entries)
        while index and self.entries[index - 1].message == entry.message:
            index -= 1
            self.entries[index] = replace(self.entries[index], trigger=entry.trigger)
        self.entries.insert(index, entry)

    def _entries_of(self, event: Event, retries: Mapping[str, int | None]) -> list[TimelineEntry]:
        body = event.body
        match body:
            case e.CheckFinished():
                self._checks[body.head, body.name] = body.state
            case e.ChecksSettled() if not body.none:
                states = [state for (head, _), state in self._checks.items() if head == body.head]
                is_green = bool(states) and all(state in PASSING_STATES for state in states)
                return [_entry("seen", f"Checks passed at {_short(body.head)}", by="checks")] if is_green else []
            case e.ConflictsSeen():
                was_conflicted, self._conflicted = self._conflicted, bool(body.files)
                if was_conflicted == self._conflicted and not body.files:
                    return []
            case e.AgentProgress():
                previous_step, self._step = self._step, body.step or self._step
                return [_entry("said", body.step, by="agent")] if body.step and body.step != previous_step else []
            case e.MessageDelivered():
                self._unacknowledged.append(body.message)
            case e.AgentAck():
                acknowledged_message = body.message or (self._unacknowledged[0] if self._unacknowledged else "")
                if acknowledged_message in self._unacknowledged:
                    self._unacknowledged.remove(acknowledged_message)
                return [
                    _entry("acknowledged", "The agent took the message up", message=acknowledged_message, by="agent")
                ]
            case e.Reacted():
                total = f" of {retry_limit}" if (retry_limit := retries.get(body.rule)) else ""
                title = f"Rule {body.rule}: {body.action}, attempt {body.attempt}{total}"
                sends_message = body.action in ("send-to-agent", "restart")
                message = message_id(event.key.rpartition(":")[0]) if sends_message else ""
                has_message_entry = (
                    any(earlier.message == message for earlier in self.entries[-4:]) if message else False
                )
                return [_entry("decided", title, body.detail, body.trigger, message if has_message_entry else "")]
        make_entry = _ENTRY_MAKERS.get(type(body))
        entry = make_entry(body) if make_entry else None
        return [entry] if entry else []


def entry_json(entry: TimelineEntry) -> dict[str, Any]:
    """Return an entry in the shape that the API promises."""
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


def _author_of(event: Event) -> str:
    """Return who an event's information comes from."""
    source = event.source
    if source in ("spool", "transcript", "protocol", "screen"):
        return "agent"
    return source or "daemon"


def _entry(
    kind: EntryKind, title: str, detail: str = "", trigger: str = "", message: str = "", by: str = ""
) -> TimelineEntry:
    return TimelineEntry(0, 0.0, kind, title, detail, trigger, message, by)


# -- entries of each event ---------------------------------------------------------------------------------------------


def _short(commit: str) -> str:
    return commit[:7]


def _join_some(names: Sequence[str], maximum: int = 3) -> str:
    remainder = f" and {len(names) - maximum} more" if len(names) > maximum else ""
    return ", ".join(names[:maximum]) + remainder


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _check_entry(body: e.CheckFinished) -> TimelineEntry | None:
    if body.state == "flaky":
        return _entry(
            "seen", f"{body.name} is flaky: it failed, and passed on the same commit", body.summary, by="checks"
        )
    if body.state == NOT_SET_UP:
        return _entry(
            "seen", f"{body.name}: environment not set up: {body.reason}", body.summary, CHECK_NOT_SET_UP, by="checks"
        )
    if body.state not in FAILED_STATES or body.state == "cancelled":
        return None
    if body.on_base:
        where = "at the branch point; since fixed on the base branch" if body.fixed_since else "on the base branch"
        return _entry("seen", f"CI failed on {body.name}, as {where}", body.summary, by="checks")
    verb = "CI timed out on" if body.state == "timed_out" else "CI failed on"
    return _entry("seen", f"{verb} {body.name}", body.summary, "ci-failed", by="checks")


def _review_entry(body: e.ReviewSubmitted) -> TimelineEntry:
    verdicts = {"approved": "approved", "changes_requested": "asked for changes", "commented": "commented"}
    trigger = "changes-requested" if body.verdict == "changes_requested" else ""
    title = f"{_display_name(body.author)} {verdicts.get(body.verdict, body.verdict)}"
    return _entry("did" if body.author == "person" else "seen", title, body.body, trigger, by=body.author)


def _comment_entry(body: e.CommentAdded) -> TimelineEntry:
    where = f" on {body.path}{f':{body.line}' if body.line else ''}" if body.path else ""
    if body.by_agent:
        return _entry("said", f"Answered a comment{where}", body.body, by="agent")
    if body.author == "person":
        return _entry("did", f"You commented{where}", body.body, "review-comment", by=body.author)
    return _entry("seen", f"Comment by {body.author}{where}", body.body, "review-comment", by=body.author)


def _display_name(author: str) -> str:
    return "You" if author == "person" else author


def _exited_entry(body: e.AgentExited) -> TimelineEntry:
    outcome = f"was killed by signal {body.signal}" if body.signal else f"exited with {body.code}"
    if body.code is None and not body.signal:
        outcome = "ended, nobody saw how"
    outcome += f": {body.reason}" if body.reason else ""
    trigger = "agent-exited" if body.signal or body.code != 0 else ""
    return _entry("seen", f"The agent {outcome}", body.output, trigger)


def _queued_entry(body: e.MessageQueued) -> TimelineEntry | None:
    if body.task:
        return None
    if body.sender.startswith("rule ") or body.sender in ("daemon", "review"):
        hold_text = f"; it waits for your word: {body.hold}" if body.hold else ""
        return _entry("sent", f"Message queued for the agent{hold_text}", body.text, message=body.message)
    return _entry(
        "did", f"{_display_name(body.sender)} wrote to the agent", body.text, message=body.message, by=body.sender
    )


def _permission_answered_entry(body: e.PermissionAnswered) -> TimelineEntry:
    verb = {"allow": "Allowed", "always": "Allowed for good", "deny": "Refused"}.get(body.decision, body.decision)
    request = " ".join(part for part in (body.tool, body.command) if part)
    return _entry(
        "did", f"{verb}{f': {_first_line(request)}' if request else ''}", body.detail, "agent-blocked", by=body.by
    )


def _merged_entry(body: e.PrMerged) -> TimelineEntry:
    uncommitted = f"not committed, and kept: {_join_some(body.left)}" if body.left else ""
    return _entry("seen", f"Merged as {_short(body.commit)}", uncommitted, "pr-merged")


def _usage_limit_entry(body: e.AgentLimit) -> TimelineEntry:
    until = f"; it ends at {rfc3339(body.resets_at)}" if body.resets_at else ""
    return _entry("seen", f"The usage limit is reached{until}", trigger="usage-limit")


def _command_entry(body: e.CommandFinished) -> TimelineEntry:
    outcome = "was ended by its time limit" if body.code is None else f"ended with {body.code}"
    return _entry("seen", f"The command of rule {body.rule} {outcome}", body.output)


def _launched_entry(body: e.AgentLaunched) -> TimelineEntry:
    return _entry("seen", "The agent started again, in the same conversation" if body.resumed else "The agent started")


def _turn_entry(body: e.AgentTurnEnded) -> TimelineEntry | None:
    return _entry("said", _first_line(body.text), body.text, by="agent") if body.text.strip() else None


def _conflict_cleared_entry(body: e.ConflictCleared) -> TimelineEntry:
    remaining = f" but for {_join_some(body.files)}" if body.files else ""
    return _entry("seen", f"No conflict with {body.other} any more{remaining}", trigger="conflict-predicted")


def _opened_entry(body: e.PrOpened) -> TimelineEntry:
    return _entry("seen", f"Pull request #{body.number} opened{', a draft' if body.draft else ''}", body.title)


def _agent_review_entry(body: e.AgentReview) -> TimelineEntry:
    return _entry("said", f"Judged the change: {body.verdict.replace('_', ' ')}", body.body, by="agent")


def _conflicts_entry(body: e.ConflictsSeen) -> TimelineEntry:
    if not body.files:
        return _entry("seen", "The conflicts with the base are gone", by="git")
    return _entry("seen", f"Conflicts with the base in {_join_some(body.files)}", "", "merge-conflicts", by="git")


def _permission_entry(body: e.PermissionAsked) -> TimelineEntry:
    request = f"{body.tool}: {_first_line(body.command)}" if body.command else body.tool
    return _entry("said", f"Asks for permission: {request}", body.reason or body.command, "agent-blocked", by="agent")


_TERMINAL_USES = {"typed": "typed into", "attached": "opened"}
_ENTRY_MAKERS: Mapping[type[e.Body], Callable[[Any], TimelineEntry | None]] = {
    e.SessionCreated: lambda b: _entry("did", f"Started: {b.title}", b.prompt),
    e.SessionReassigned: lambda b: _entry("did", f"Given to {b.profile or b.agent}"),
    e.SessionWaiting: lambda b: _entry("seen", f"Waits for {b.reason}"),
    e.SessionFailed: lambda b: _entry("seen", f"{b.step} failed: {_first_line(b.error)}", b.remedy),
    e.WorkspaceCreated: lambda b: _entry("seen", f"Workspace made on {b.branch}", b.path),
    e.WorkPushed: lambda b: _entry("seen", f"Pushed {_short(b.head)}"),
    e.HeadMoved: lambda b: _entry("seen", f"Committed {_short(b.head)}", by="agent"),
    e.BaseChanged: lambda b: _entry("seen", f"The change is for {b.base} now", b.reason),
    e.BranchRebased: lambda b: _entry("seen", f"Rebased onto {_short(b.onto)}"),
    e.RebaseRefused: lambda b: _entry("seen", "Could not be rebased", b.reason, "merge-conflicts"),
    e.StopRequested: lambda b: _entry("did", "Asked to stop" + (", keeping the workspace" if b.keep else "")),
    e.WorkRescued: lambda b: _entry("seen", f"Unsaved work saved as {b.ref}", _join_some(b.what, 10)),
    e.SessionStopped: lambda b: _entry("seen", "Stopped; its work is saved", "\n".join(b.saved)),
    e.RestoreRequested: lambda _: _entry("did", "Brought back"),
    e.CommandRun: lambda b: _entry("did", "Ran a command in its workspace", " ".join(b.command), by="person"),
    e.TerminalTaken: lambda b: _entry("did", f"Its terminal was {_TERMINAL_USES.get(b.how, b.how)}", by="person"),
    e.SessionPlaced: lambda b: _entry("decided", f"Lives on node {b.node}"),
    e.SessionUnseen: lambda b: _entry("seen", f"Node {b.node} cannot be reached", b.reason),
    e.SessionSeen: lambda b: _entry("seen", f"Node {b.node} is there again"),
    e.MoveRequested: lambda b: _entry("decided", f"Is to leave node {b.node}", b.reason),
    e.SessionDisplaced: lambda b: _entry("seen", f"Left node {b.node}", b.reason),
    e.AgentLaunched: _launched_entry,
    e.AgentTurnEnded: _turn_entry,
    e.PermissionAsked: _permission_entry,
    e.AgentLimit: _usage_limit_entry,
    e.AgentAsk: lambda b: _entry(
        "said", f"Asks: {_first_line(b.question)}", b.question, "agent-needs-input", by="agent"
    ),
    e.AgentDone: lambda b: _entry(
        "said", f"Done{f': {_first_line(b.summary)}' if b.summary else ''}", b.summary, by="agent"
    ),
    e.AgentReview: _agent_review_entry,
    e.AgentReport: lambda b: _entry("said", f"Reported {b.name}", by="agent"),
    e.AgentExited: _exited_entry,
    e.AgentLost: lambda b: _entry("seen", f"The agent is gone: {b.reason}", trigger="agent-exited"),
    e.AgentStopped: lambda _: _entry("seen", "The agent was stopped"),
    e.MessageQueued: _queued_entry,
    e.MessageHeld: lambda b: _entry("sent", f"The message waits: {b.reason}", message=b.message),
    e.MessageReleased: lambda b: _entry("did", "Let the message through", message=b.message),
    e.MessageDelivered: lambda b: _entry("sent", "Message delivered", message=b.message),
    e.MessageFailed: lambda b: _entry("sent", f"The message was not delivered: {b.reason}", message=b.message),
    e.PermissionAnswered: _permission_answered_entry,
    e.PrOpened: _opened_entry,
    e.PrReady: lambda _: _entry("seen", "The pull request is ready for review"),
    e.PrChanged: lambda b: _entry("seen", "The pull request changed", b.blocked or b.title),
    e.PrClosed: lambda b: _entry("seen", "The pull request was closed", b.reason, "pr-closed"),
    e.PrMerged: _merged_entry,
    e.ConflictsSeen: _conflicts_entry,
    e.ChecksRequested: lambda b: _entry("did", f"Asked for the checks to run again at {_short(b.head)}"),
    e.CheckFinished: _check_entry,
    e.ChecksByHand: lambda b: _entry("seen", f"No check runs at {_short(b.head)} until somebody asks for it"),
    e.ReviewSubmitted: _review_entry,
    e.ReviewChanged: lambda b: _entry("seen", f"A review counts as {b.verdict.replace('_', ' ')} now"),
    e.ThreadSettled: lambda b: _entry("seen", "A discussion was " + ("resolved" if b.resolved else "taken up again")),
    e.PeopleAsked: lambda b: _entry("seen", f"{_join_some(b.people)} asked to review"),
    e.CommentAdded: _comment_entry,
    e.MergeRequested: lambda b: _entry("did", f"Asked to merge ({b.strategy}{', forced' if b.force else ''})"),
    e.LandingWaits: lambda b: _entry("seen", f"Landing waits for {b.reason}") if b.reason else None,
    e.LandingFailed: lambda b: _entry("seen", f"Not landed: {_first_line(b.reason)}", b.reason),
    e.ConflictPredicted: lambda b: _entry(
        "seen", f"Will conflict with {b.other}: {_join_some(b.files)}", "", "conflict-predicted"
    ),
    e.ConflictCleared: _conflict_cleared_entry,
    e.Escalated: lambda b: _entry("decided", f"You were called: {b.reason}", "", b.trigger),
    e.ActionOffered: lambda b: _entry("decided", f"Offered to you: {b.action}", b.text, b.trigger),
    e.OfferAnswered: lambda b: _entry("did", "Took the offer" if b.decision == "allow" else "Refused the offer"),
    e.OfferWithdrawn: lambda _: _entry("seen", "What you were asked for has settled itself"),
    e.CommandFinished: _command_entry,
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
    e.NotifierFailing: lambda b: _entry(
        "seen", f"You could not be told by {b.notifier}: {_first_line(b.error)}", b.remedy
    ),
    e.AnswerLinkUsed: lambda b: _entry("did", f"Answered from a notification: {b.verb}", f"by {b.by}"),
    e.Notified: lambda b: _entry("sent", f"You were told: {b.title}", b.message, b.trigger),
    e.EffectFailed: lambda b: _entry(
        "seen", f"{b.intent.partition(':')[0]} was given up: {_first_line(b.error)}", b.remedy
    ),
    e.EffectDelayed: lambda b: _entry("seen", f"{b.intent.partition(':')[0]} waits: {_first_line(b.error)}", b.remedy),
}
"""Type of event → the function that makes its entry, for those that do not depend on earlier events."""

TYPES_WITH_ENTRY = frozenset({*_ENTRY_MAKERS, e.ChecksSettled, e.AgentProgress, e.AgentAck, e.Reacted})
"""Types of events that have an entry."""

# -- the state in one sentence -----------------------------------------------------------------------------------------

_TRIGGERS_BY_STATUS = {
    "ci_failed": "ci-failed",
    "conflicted": "merge-conflicts",
    "changes_requested": "changes-requested",
}
_NOUNS = {"ci-failed": "log", "changes-requested": "comments", "review-comment": "comments", "merge-conflicts": "files"}


def state_sentence(
    facts: SessionFacts,
    status: Status,
    entries: Sequence[TimelineEntry],
    rules: Sequence[Rule],
    hour: Callable[[float], str],
) -> str:
    """Return a session's state in one sentence: the problem that its agent works on with the progress made, or else its status."""
    trigger = _current_trouble(facts, status)
    title = _trouble_title(facts, trigger, entries) if trigger else ""
    if not trigger or not title:
        return status.why[:1].upper() + status.why[1:]
    return f"{title}; {', '.join(_progress_parts(facts, trigger, entries, rules, hour))}"


def _current_trouble(facts: SessionFacts, status: Status) -> str:
    """Return the trigger of the problem that the agent is to fix, by the status or, while it works, by the latest episode; "" if none."""
    if status.name in _TRIGGERS_BY_STATUS:
        return _TRIGGERS_BY_STATUS[status.name]
    if status.name not in ("working", "starting", "stuck", "ci_running", "limited"):
        return ""
    active_episodes = [
        (episode.since, name) for name, episode in facts.episodes.items() if name in _NOUNS and episode.attempts
    ]
    return max(active_episodes)[1] if active_episodes else ""


def _trouble_title(facts: SessionFacts, trigger: str, entries: Sequence[TimelineEntry]) -> str:
    failing = [run.name for run in facts.pr.failing_checks(facts.head)] if facts.pr else []
    if trigger == "ci-failed" and failing:
        return f"CI failed on {_join_some(failing)}"
    titles = [entry.title for entry in entries if entry.trigger == trigger and entry.kind in ("seen", "did")]
    return titles[-1] if titles else ""


def _progress_parts(
    facts: SessionFacts,
    trigger: str,
    entries: Sequence[TimelineEntry],
    rules: Sequence[Rule],
    hour: Callable[[float], str],
) -> list[str]:
    episode = facts.episodes.get(trigger)
    rule = next((item for item in rules if item.trigger == trigger), None)
    sent_messages = [
        item.message for item in entries if item.kind == "decided" and item.trigger == trigger and item.message
    ]
    message = next((item for item in facts.messages if sent_messages and item.id == sent_messages[-1]), None)
    parts = _message_parts(message, _NOUNS[trigger], hour) if message else []
    if episode and episode.attempts:
        total = f" of {rule.retries}" if rule and rule.retries else ""
        parts.append(f"attempt {episode.attempts}{total}")
    escalation_times = [
        entry.at for entry in entries if entry.title.startswith("You were called") and entry.trigger == trigger
    ]
    if episode and episode.escalated:
        parts.append(f"you were called {hour(escalation_times[-1])}" if escalation_times else "you were called")
    return parts or ["nothing was sent to the agent yet"]


def _message_parts(message: Message, noun: str, hour: Callable[[float], str]) -> list[str]:
    if message.needs_approval and message.pending:
        return [f"{noun} held for your word"]
    if message.state == "failed" and message.delivered_at is not None:
        return [f"{noun} sent {hour(message.delivered_at)}, but {message.reason}"]
    if message.state == "failed":
        return [f"{noun} not delivered: {message.reason}"]
    if message.delivered_at is None and message.acknowledged_at is None:
        return [f"{noun} waits to be sent{f': {message.reason}' if message.reason else ''}"]
    sent = message.delivered_at or message.acknowledged_at or 0.0
    acknowledgement = [f"acknowledged {hour(message.acknowledged_at)}"] if message.acknowledged_at else []
    return [f"{noun} sent {hour(sent)}", *acknowledgement]
