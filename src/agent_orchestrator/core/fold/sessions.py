"""From events to facts: `reduce(facts, event) -> facts`. Pure.

Two kinds of events meet here. *Decisions* (created, admitted, launched, stop requested) come from the daemon alone, in the
order of the log. *Observations* (what the agent said, how its process ended, where HEAD is) come from outside, late, twice or
out of order. So an observation of an earlier launch changes nothing, an older one never replaces a newer one, a message's
state only rises, and an end stays an end.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from agent_orchestrator.core import events as e
from agent_orchestrator.core.episodes import closed
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import (
    AccountHold,
    ActivityFact,
    Asked,
    Digest,
    Failure,
    HeldNotice,
    HomeFacts,
    Launch,
    Message,
    Outage,
    Place,
    Progress,
    ProjectFacts,
    SessionFacts,
    TaskFacts,
    Usage,
    hold_key,
)
from agent_orchestrator.core.fixes import reduce_fixes
from agent_orchestrator.core.fold import clock, pull_requests
from agent_orchestrator.core.fold import nodes as fold_nodes
from agent_orchestrator.core.fold.pull_requests import Step, reduce_issues
from agent_orchestrator.core.plans import reduce_plans
from agent_orchestrator.core.questions import question_in
from agent_orchestrator.core.status import IN_TURN, derive

KEPT_MESSAGES = 200
"""Settled messages that a session remembers."""

KEPT_HOLD = 3600.0
"""Seconds that a hold is remembered that is over."""
MOST_MODELS = 50
"""Models of one day whose usage is told apart in a session."""
LONGEST_MODEL = 200
OTHER_MODELS = "other models"
LONGEST_LIMIT = 8 * 86400.0
"""A usage limit that is said to last longer than this, in seconds, has no reset time that could be believed."""

_RANK = {"queued": 0, "held": 1, "failed": 2, "delivered": 3, "acknowledged": 5}
_IN_DOUBT = 4
"""Delivered, and failed all the same: its agent was lost before it took it up."""


def reduce(facts: SessionFacts | None, event: Event) -> SessionFacts | None:
    """One session's facts after one more event. An event of another launch or of no session leaves them as they are."""
    if isinstance(event.body, e.SessionCreated):
        return facts or _created(event, event.body)
    step = _STEPS.get(type(event.body))
    if facts is None or step is None:
        return facts
    of_another_launch = event.generation and event.generation != facts.generation
    if of_another_launch and not isinstance(event.body, e.AgentLaunched | e.AgentUsage | e.AgentAck):
        return facts  # but what it used was used, and what it took up was taken up
    after = _touch(step(facts, event, event.body), event)
    return closed(after, derive(after, event.time)) if after.episodes or after.offers else after


def reduce_home(facts: HomeFacts, event: Event) -> HomeFacts:
    """The home's facts after one more event."""
    body, project = event.body, event.project or ""
    match body:
        case e.ProjectRegistered():
            known = ProjectFacts(project, body.path, body.config, announced=body.announced)
            return replace(facts, projects={**facts.projects, project: known})
        case e.ProjectRemoved() if project in facts.projects:
            gone = replace(facts.projects[project], removed=True)
            outages = {key: one for key, one in facts.outages.items() if one.project != project}
            return replace(facts, projects={**facts.projects, project: gone}, outages=outages)
        case e.CommandsTrusted():
            return replace(facts, trusted={**facts.trusted, body.digest: body.file})
        case e.CommandsProposed():
            return replace(facts, proposed={**facts.proposed, body.digest: body.file})
        case e.PermissionAllowed() | e.PermissionWithdrawn():
            rule = (body.tool, body.command)
            rest = tuple(one for one in facts.allowed.get(project, ()) if one != rule)
            kept = (*rest, rule) if isinstance(body, e.PermissionAllowed) else rest
            return replace(facts, allowed={**facts.allowed, project: kept})
        case e.ConfigurationBroken():
            return replace(facts, broken={**facts.broken, body.file: body.error})
        case e.ConfigurationChanged():
            return replace(facts, broken={file: error for file, error in facts.broken.items() if file != body.file})
        case e.TaskCreated() if body.task not in facts.tasks:
            task = TaskFacts(
                id=body.task,
                project=project,
                title=body.title,
                description=body.description,
                created_at=event.time,
                issue=body.issue,
                labels=body.labels,
                priority=body.priority,
                after=body.after,
            )
            return replace(facts, tasks={**facts.tasks, body.task: task})
        case e.SessionCreated() if body.task in facts.tasks and event.session:
            task = facts.tasks[body.task]
            if event.session in task.sessions:
                return facts
            grown = replace(task, sessions=(*task.sessions, event.session))
            return replace(facts, tasks={**facts.tasks, body.task: grown})
        case e.AccountHeld():
            return replace(facts, accounts=_with_hold(facts.accounts, event, body))
        case e.AccountReleased():
            hold = facts.accounts.get(hold_key(body.account, body.model))
            if hold is None or hold.released is not None:
                return facts
            free = replace(hold, released=event.time)
            return replace(facts, accounts={**facts.accounts, hold.key: free})
        case e.AllComplete():
            told = dict.fromkeys((*facts.completed.get(project, ()), *body.sessions))
            return replace(facts, completed={**facts.completed, project: tuple(told)})
        case e.NotificationHeld():
            held = HeldNotice(event.session or "", body.title, body.message, body.level, body.until)
            return replace(facts, quiet={**facts.quiet, project: (*facts.quiet.get(project, ()), held)})
        case e.ReadingFailed():
            outage = Outage(project, body.name, body.reason, body.remedy, body.since, body.called)
            return replace(facts, outages={**facts.outages, outage_key(project, body.name): outage})
        case e.ReadingResumed():
            over = outage_key(project, body.name)
            return replace(facts, outages={key: one for key, one in facts.outages.items() if key != over})
        case e.QuietHoursEnded():
            later_ones = tuple(one for one in facts.quiet.get(project, ()) if one.until > body.until)
            return replace(facts, quiet={**facts.quiet, project: later_ones})
    nodes = fold_nodes.reduce_nodes(facts.nodes, event)
    if nodes is not facts.nodes:
        return replace(facts, nodes=nodes)
    fixes = reduce_fixes(facts.fixes, event)
    if fixes is not facts.fixes:
        return replace(facts, fixes=fixes)
    plans = reduce_plans(facts.plans, event)
    return replace(facts, plans=plans) if plans is not facts.plans else reduce_issues(facts, event)


def _with_hold(accounts: Mapping[str, AccountHold], event: Event, body: e.AccountHeld) -> dict[str, AccountHold]:
    """One more hold; those that were over long ago are forgotten. Of two for one account the later time counts."""
    key, session = hold_key(body.account, body.model), event.session or ""
    hold = AccountHold(body.account, body.model, body.until, event.time, body.named, body.times, body.reason, session)
    known = accounts.get(key)
    if known is not None and known.released is None and known.until > max(body.until, event.time):
        hold = replace(known, times=max(known.times, body.times))
    kept = {
        name: one for name, one in accounts.items() if one.released is None or one.released > event.time - KEPT_HOLD
    }
    return {**kept, key: hold}


def outage_key(project: str, name: str) -> str:
    """Names a project's forge or tracker among all projects'."""
    return f"{project} {name}"


def spool_key(session: str, generation: int, start: int, end: int) -> str:
    """The key of an event read from the spool: names the line for good, and says where the next one begins."""
    return f"spool:{session}:{generation}:{start}:{end}"


def ended_key(session: str, generation: int) -> str:
    """The end of a launch is told once, whoever sees it first."""
    return f"ended:{session}:{generation}"


def heard_key(session: str, place: str, start: int, end: int, number: int) -> str:
    """The key of an event read from an agent's own records: the same for every reading, and it says where to go on."""
    return f"heard:{session}:{place.replace(':', '-')}:{start}:{end}:{number}"


def _touch(facts: SessionFacts, event: Event) -> SessionFacts:
    spool, heard_at, cursors = facts.spool, facts.heard_at, facts.cursors
    if event.generation == facts.generation and (event.source in ("spool", "mcp") or event.key.startswith("heard:")):
        heard_at = max(heard_at, event.time)
        spool = max(spool, _spool_end(event.key))
        if place := _HEARD.fullmatch(event.key):
            cursors = {**cursors, place["place"]: max(cursors.get(place["place"], 0), int(place["end"]))}
    return replace(
        facts,
        updated_at=max(facts.updated_at, event.time),
        seq=max(facts.seq, event.seq),
        spool=spool,
        heard_at=heard_at,
        cursors=cursors,
    )


_HEARD = re.compile(r"heard:[^:]+:(?P<place>[^:]+):[0-9]+:(?P<end>[0-9]+):[0-9]+", re.ASCII)


def _spool_end(key: str) -> int:
    end = key.rpartition(":")[2]
    return int(end) if key.startswith("spool:") and end.isascii() and end.isdigit() else 0


def _outdated(facts: SessionFacts, event: Event, *, own_word: bool = True) -> bool:
    """Something newer is known. The agent's first own word counts whatever its time: until then others only guessed."""
    return event.time < facts.activity.at and (facts.spoke or not own_word)


def _created(event: Event, body: e.SessionCreated) -> SessionFacts:
    return SessionFacts(
        id=event.session or "",
        project=event.project or "",
        spec=body,
        created_at=event.time,
        updated_at=event.time,
        seq=event.seq,
        branch=body.branch,
        base=body.base,
        activity=ActivityFact("unknown", "daemon", event.time),
        digest=Digest(upto=event.seq),
    )


# -- Decisions of the daemon -------------------------------------------------------------------------------------------


def _reassigned(facts: SessionFacts, _event: Event, body: e.SessionReassigned) -> SessionFacts:
    if facts.launch is not None:
        return facts
    spec = replace(
        facts.spec,
        agent=body.agent,
        runtime=body.runtime,
        title=body.title,
        profile=body.profile,
        model=body.model,
        rules=body.rules,
        account=body.account,
    )
    return replace(facts, spec=spec)


def _admitted(facts: SessionFacts, _event: Event, _body: e.SessionAdmitted) -> SessionFacts:
    return replace(facts, admitted=True, waiting_for="", turn_since=None)


def _waiting(facts: SessionFacts, event: Event, body: e.SessionWaiting) -> SessionFacts:
    if facts.admitted:
        return facts
    since = (facts.turn_since or event.time) if body.turn else None
    return replace(facts, waiting_for=body.reason, turn_since=since)


def _put_off(facts: SessionFacts, _event: Event, body: e.StartPutOff) -> SessionFacts:
    if facts.live or not facts.admitted or facts.wanted != "run":
        return facts
    return replace(facts, admitted=False, waiting_for=body.reason, turn_since=None, run=facts.run + 1)


def _failed(facts: SessionFacts, event: Event, body: e.SessionFailed) -> SessionFacts:
    return replace(facts, failure=Failure(body.step, body.error, body.remedy, event.time))


def _workspace(facts: SessionFacts, _event: Event, body: e.WorkspaceCreated) -> SessionFacts:
    notes = facts.notes + tuple(note for note in body.notes if note not in facts.notes)
    place = Place(body.path, body.base_commit, body.git_dir, body.git_env, shared=body.shared, copied=body.copied)
    if facts.place and body.base_commit == "":
        place = replace(place, base_commit=facts.place.base_commit)
    return replace(
        facts,
        place=place,
        branch=body.branch,
        base=body.base,
        head=body.head,
        notes=notes,
        forgot=facts.forgot or body.forgot,
    )


def _launched(facts: SessionFacts, event: Event, body: e.AgentLaunched) -> SessionFacts:
    if event.generation <= facts.generation:
        return facts
    return replace(
        facts,
        launch=Launch(
            event.generation, body.handle, event.time, resumed=body.resumed, inbox=body.inbox, memo=body.memo
        ),
        launched_run=facts.run,
        conversation=body.conversation or facts.conversation,
        activity=ActivityFact("starting", "process", event.time),
        forgot=False,
        spoke=False,
        heard_at=0.0,
        spool=0,
        question="",
        asked="",
        permission=None,
        done=None,
        failure=None,
        limited_at=None,
        limit_until=None,
        notes=facts.notes + tuple(note for note in body.env_notes if note not in facts.notes),
    )


def _stop(facts: SessionFacts, event: Event, body: e.StopRequested) -> SessionFacts:
    if facts.stopped:
        return facts
    again = facts.wanted == "stop" and facts.failure is not None
    who = event.source or "person"
    return replace(facts, wanted="stop", keep=body.keep, failure=None, run=facts.run + again, stopped_by=who)


def _stopped(facts: SessionFacts, _event: Event, body: e.SessionStopped) -> SessionFacts:
    place = facts.place and replace(facts.place, present=body.kept)
    node = facts.node if body.kept else None
    stopped = _fail_pending(facts, "the session was stopped")
    return replace(
        stopped, stopped=True, saved=body.saved, place=place, node=node, moving="", unseen="", unseen_since=None
    )


def _restore(facts: SessionFacts, _event: Event, _body: e.RestoreRequested) -> SessionFacts:
    return replace(
        facts,
        wanted="run",
        keep=False,
        stopped=False,
        saved=(),
        run=facts.run + 1,
        admitted=False,
        waiting_for="",
        turn_since=None,
        failure=None,
        losses=0,
    )


def _rescued(facts: SessionFacts, _event: Event, body: e.WorkRescued) -> SessionFacts:
    return replace(facts, rescues=(*(ref for ref in facts.rescues if ref != body.ref), body.ref))


def _timer(facts: SessionFacts, event: Event, body: e.TimerDue) -> SessionFacts:
    limited = facts.activity.state == "limited" or facts.limit_until is not None
    if body.name == "limit" and limited and (facts.limit_until or 0.0) <= event.time:
        activity = ActivityFact("unknown", "clock", event.time) if facts.activity.state == "limited" else facts.activity
        return replace(facts, limited_at=None, limit_until=None, activity=activity)
    return facts


# -- What the agent says -----------------------------------------------------------------------------------------------


def _activity(facts: SessionFacts, event: Event, body: e.AgentActivity) -> SessionFacts:
    # What an agent's plugin read off the screen is no guess: it knows its records, and looks where they are silent.
    own_word = event.source not in ("screen", "terminal", "process") or event.key.startswith(("now:", "heard:"))
    if not facts.live or _outdated(facts, event, own_word=own_word) or (facts.spoke and not own_word):
        return facts
    answered = body.state in ("active", "idle") and own_word
    return replace(
        facts,
        activity=ActivityFact(body.state, event.source, event.time, body.detail),
        spoke=facts.spoke or own_word,
        permission=facts.permission if body.state == "blocked" else None,
        question=facts.asked if answered else facts.question or (body.detail if body.state == "waiting_input" else ""),
        limited_at=event.time if body.state == "limited" and not facts.limited else facts.limited_at,
        limit_until=None if body.state == "active" else facts.limit_until,
        done=None if body.state == "active" else facts.done,
    )


def _permission(facts: SessionFacts, event: Event, body: e.PermissionAsked) -> SessionFacts:
    if not facts.live or _outdated(facts, event):
        return facts
    what = f"{body.tool}: {body.command}" if body.command else body.tool
    asked = Asked(body.tool, body.command, body.reason, body.request, event.time)
    return replace(
        facts, permission=asked, activity=ActivityFact("blocked", event.source, event.time, what), spoke=True
    )


def _turn_ended(facts: SessionFacts, event: Event, body: e.AgentTurnEnded) -> SessionFacts:
    if not facts.live or _outdated(facts, event):
        return facts
    question = question_in(body.text) or facts.asked
    state = "waiting_input" if question else "idle"
    return replace(
        facts,
        activity=ActivityFact(state, event.source, event.time, question),
        question=question,
        permission=None,
        said=body.text,
        spoke=True,
        losses=0,
    )


def _conversation(facts: SessionFacts, _event: Event, body: e.AgentConversation) -> SessionFacts:
    return replace(facts, conversation=body.conversation)


def _ack(facts: SessionFacts, event: Event, body: e.AgentAck) -> SessionFacts:
    open_ones = [message.id for message in facts.messages if message.state == "delivered"]
    facts = _raise_message(facts, body.message or next(iter(open_ones), ""), "acknowledged", event.time)
    return replace(facts, acknowledges=True)


def _progress(facts: SessionFacts, _event: Event, body: e.AgentProgress) -> SessionFacts:
    old = facts.progress
    return replace(
        facts,
        progress=Progress(
            done=old.done if body.done is None else body.done,
            total=old.total if body.total is None else body.total,
            step=body.step or old.step,
            tests_passed=old.tests_passed if body.tests_passed is None else body.tests_passed,
        ),
    )


def _usage(facts: SessionFacts, event: Event, body: e.AgentUsage) -> SessionFacts:
    used = Usage(body.input, body.output, body.cache_read, body.cache_write, body.usd, body.forge)
    place = _place(facts, e.rfc3339(event.time)[:10], body.model[:LONGEST_MODEL])
    spent = {**facts.spent, place: facts.spent.get(place, Usage()).plus(used)}
    return replace(facts, usage=facts.usage.plus(used), spent=spent)


def _place(facts: SessionFacts, day: str, model: str) -> str:
    """Where a day's usage of a model is counted. An agent names its models: what goes beyond all that there are is counted together."""
    place = f"{day} {model}"
    if place in facts.spent or sum(one.startswith(f"{day} ") for one in facts.spent) < MOST_MODELS:
        return place
    return f"{day} {OTHER_MODELS}"


def _raised(facts: SessionFacts, _event: Event, body: e.BudgetRaised) -> SessionFacts:
    key = f"{body.scope} {body.day}".strip()
    return replace(facts, raised={**facts.raised, key: facts.raised.get(key, 0) + 1})


def _limit(facts: SessionFacts, event: Event, body: e.AgentLimit) -> SessionFacts:
    if not facts.live or _outdated(facts, event):
        return facts
    until = believable(body.resets_at, event.time)
    activity = ActivityFact("limited", event.source, event.time)
    return replace(
        facts, limited_at=event.time, limit_until=until, limit_model=body.model, activity=activity, spoke=True
    )


def believable(resets_at: float | None, now: float) -> float | None:
    """A reset time as the agent named it; none if it is over already, or so far that it cannot be meant."""
    return resets_at if resets_at is not None and now < resets_at <= now + LONGEST_LIMIT else None


def _account(facts: SessionFacts, event: Event, body: e.AccountHeld | e.AccountReleased) -> SessionFacts:
    """A session that met the limit goes on when its account may be used again."""
    if not facts.limited:
        return facts
    if isinstance(body, e.AccountReleased):
        return replace(facts, limit_until=event.time)
    return replace(facts, limit_until=body.until if body.waits is None else max(body.until, body.waits))


def _ask(facts: SessionFacts, event: Event, body: e.AgentAsk) -> SessionFacts:
    if not facts.live or _outdated(facts, event):
        return facts
    activity = ActivityFact("waiting_input", event.source, event.time, body.question)
    asked = body.question if body.stands else facts.asked
    return replace(facts, question=body.question, asked=asked, activity=activity, spoke=True)


def _done(facts: SessionFacts, event: Event, body: e.AgentDone) -> SessionFacts:
    activity = facts.activity
    if facts.live and not _outdated(facts, event):
        activity = ActivityFact("idle", event.source, event.time, body.summary)
    return replace(facts, done=body.summary, activity=activity, question="", asked="", spoke=True)


def _exited(facts: SessionFacts, event: Event, body: e.AgentExited | e.AgentStopped) -> SessionFacts:
    if facts.launch is None or facts.launch.ended:
        return facts
    stopped = isinstance(body, e.AgentStopped)
    launch = replace(
        facts.launch,
        ended=True,
        stopped=stopped,
        code=body.code,
        signal=body.signal,
        ended_at=event.time,
        output=body.output if isinstance(body, e.AgentExited) else "",
        reason=body.reason if isinstance(body, e.AgentExited) else "",
    )
    how = "stopped" if stopped else "killed" if body.signal else f"exit {body.code}"
    limited_at = facts.limited_at if facts.activity.state == "limited" and not stopped else None
    if stopped and facts.moving:
        facts = _doubted(facts, "was moved")
    facts = replace(facts, launch=launch, activity=ActivityFact("exited", event.source, event.time))
    facts = replace(facts, question="", permission=None, limited_at=limited_at)
    if facts.limited:
        return facts  # it is started again when the limit is over, and gets what waits for it then
    if facts.launched_run != facts.run and facts.wanted == "run":
        return facts  # it is started anew, and gets what waits for it then
    return _fail_pending(facts, f"the agent ended ({how}) before it was delivered", before=event.time)


def _lost(facts: SessionFacts, event: Event, body: e.AgentLost) -> SessionFacts:
    if facts.launch is None or facts.launch.ended:
        return facts
    in_turn = facts.activity.state in {*IN_TURN, "blocked"}
    launch = replace(facts.launch, ended=True, lost=body.reason, cut_short=in_turn, ended_at=event.time)
    activity = ActivityFact("interrupted", event.source, event.time, body.reason)
    facts = _doubted(facts, f"was lost ({body.reason})")
    return replace(facts, launch=launch, activity=activity, permission=None)


def _output(facts: SessionFacts, event: Event, _body: e.AgentOutput) -> SessionFacts:
    return replace(facts, heard_at=max(facts.heard_at, event.time))


def _head(facts: SessionFacts, _event: Event, body: e.HeadMoved) -> SessionFacts:
    pr = replace(facts.pr, refused="") if facts.pr and body.head != facts.head else facts.pr
    return replace(facts, head=body.head, pr=pr)


def _base_changed(facts: SessionFacts, _event: Event, body: e.BaseChanged) -> SessionFacts:
    """Whatever was compared with the old base says nothing about the new one."""
    pr = replace(facts.pr, base=body.base, compared=None, conflicts=(), refused="") if facts.pr else None
    below = body.below if facts.place else None
    return replace(facts, base=body.base, base_head=None, below=below or None, unmoved=None, pr=pr)


def _rebased(facts: SessionFacts, _event: Event, body: e.BranchRebased) -> SessionFacts:
    return replace(facts, below=None, unmoved=None, place=facts.place and replace(facts.place, base_commit=body.onto))


def _not_rebased(facts: SessionFacts, _event: Event, body: e.RebaseRefused) -> SessionFacts:
    return replace(facts, unmoved=body.head)


def _published(facts: SessionFacts, _event: Event, body: e.WorkPublished) -> SessionFacts:
    return replace(facts, published=body.head)


def _tracked(facts: SessionFacts, _event: Event, body: e.IssueTracked) -> SessionFacts:
    return replace(facts, tracked=body.state)


def _pushed(facts: SessionFacts, _event: Event, body: e.WorkPushed) -> SessionFacts:
    return replace(facts, pushed=body.head)


# -- Messages ----------------------------------------------------------------------------------------------------------


def _queued(facts: SessionFacts, event: Event, body: e.MessageQueued) -> SessionFacts:
    if any(message.id == body.message for message in facts.messages):
        return facts
    message = Message(body.message, body.text, body.sender, event.time, interrupt=body.interrupt, task=body.task)
    if body.hold:
        message = replace(message, state="held", reason=body.hold, needs_word=True)
    if facts.stopped:
        message = replace(message, state="failed", reason="the session was stopped")
    ahead = 0 if body.task else len(facts.messages)
    return replace(facts, messages=_bounded((*facts.messages[:ahead], message, *facts.messages[ahead:])))


def _digested(facts: SessionFacts, event: Event, body: e.DigestSent) -> SessionFacts:
    known = next((one for one in facts.messages if one.id == facts.digest.message), None)
    lost = known is not None and known.state == "failed"
    since = facts.digest.since if lost else facts.digest.upto
    return replace(facts, digest=Digest(body.upto, body.message, since, event.time))


def _held(facts: SessionFacts, event: Event, body: e.MessageHeld) -> SessionFacts:
    return _raise_message(facts, body.message, "held", event.time, body.reason)


def _released(facts: SessionFacts, _event: Event, body: e.MessageReleased) -> SessionFacts:
    def free(message: Message) -> Message:
        mine = message.id == body.message and message.pending and message.needs_word
        return replace(message, needs_word=False, reason="") if mine else message

    return replace(facts, messages=tuple(free(message) for message in facts.messages))


def _delivered(facts: SessionFacts, event: Event, body: e.MessageDelivered) -> SessionFacts:
    facts = _raise_message(facts, body.message, "delivered", event.time, launch=event.generation)
    if facts.launch and facts.launch.lost:
        facts = _doubted(facts, f"was lost ({facts.launch.lost})")
    if facts.asked:
        facts = replace(facts, question="", asked="")
    if facts.live and facts.activity.state in ("waiting_input", "starting") and facts.activity.at <= event.time:
        facts = replace(facts, question="", activity=ActivityFact("active", "message", event.time))
    return facts


def _message_failed(facts: SessionFacts, event: Event, body: e.MessageFailed) -> SessionFacts:
    return _raise_message(facts, body.message, "failed", event.time, body.reason)


def rank(message: Message) -> int:
    """How far a message has come."""
    return _IN_DOUBT if message.state == "failed" and message.delivered_at is not None else _RANK[message.state]


def _raise_message(
    facts: SessionFacts, message_id: str, state: str, at: float, reason: str = "", launch: int = 0
) -> SessionFacts:
    """A message's state only rises; held may be held again for another reason."""

    def raised(message: Message) -> Message:
        if message.id != message_id or _RANK[state] < rank(message):
            return message
        return replace(
            message,
            state=state,
            reason=reason,
            delivered_at=message.delivered_at or (at if state in ("delivered", "acknowledged") else None),
            acknowledged_at=message.acknowledged_at or (at if state == "acknowledged" else None),
            launch=launch or message.launch,
        )

    return replace(facts, messages=tuple(raised(message) for message in facts.messages))


def _doubted(facts: SessionFacts, how: str) -> SessionFacts:
    """What its agent, which is gone, was given and has not taken up may never have been read.

    One that says what it takes up has not: that has failed. Of one that never says so only what came after its last sign is in doubt,
    and stays delivered, with the reason.
    """
    assert facts.launch is not None
    says = facts.acknowledges or facts.launch.inbox
    sign = max(facts.activity.at, facts.heard_at)

    def doubted(message: Message) -> Message:
        if message.state != "delivered" or message.launch != facts.generation:
            return message
        if says:
            text = f"its agent {how} before it said that it took the message up; send it again if it was not followed"
            return replace(message, state="failed", reason=text)
        silent = (message.delivered_at or 0.0) >= sign
        return replace(message, reason=f"its agent {how}, and may not have read it") if silent else message

    return replace(facts, messages=tuple(doubted(message) for message in facts.messages))


def _fail_pending(facts: SessionFacts, reason: str, before: float | None = None) -> SessionFacts:
    """What waits for its delivery has failed; what waits for a person's word may still have it after the agent's end."""

    def failed(message: Message) -> Message:
        early = before is None or (message.at <= before and not message.needs_word)
        return replace(message, state="failed", reason=reason) if message.pending and early else message

    return replace(facts, messages=tuple(failed(message) for message in facts.messages))


def _bounded(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Forget the oldest settled messages; the log has them."""
    surplus = len(messages) - KEPT_MESSAGES
    if surplus <= 0:
        return messages
    settled = [message.id for message in messages if not message.pending][:surplus]
    return tuple(message for message in messages if message.id not in settled)


_STEPS: Mapping[type[e.Body], Step] = {
    **pull_requests.STEPS,
    **fold_nodes.STEPS,
    **clock.STEPS,
    e.SessionAdmitted: _admitted,
    e.SessionReassigned: _reassigned,
    e.SessionWaiting: _waiting,
    e.StartPutOff: _put_off,
    e.SessionFailed: _failed,
    e.WorkspaceCreated: _workspace,
    e.AgentLaunched: _launched,
    e.StopRequested: _stop,
    e.SessionStopped: _stopped,
    e.RestoreRequested: _restore,
    e.WorkRescued: _rescued,
    e.TimerDue: _timer,
    e.AgentActivity: _activity,
    e.AgentConversation: _conversation,
    e.AgentTurnEnded: _turn_ended,
    e.PermissionAsked: _permission,
    e.AgentAck: _ack,
    e.AgentProgress: _progress,
    e.AgentOutput: _output,
    e.AgentUsage: _usage,
    e.BudgetRaised: _raised,
    e.AgentLimit: _limit,
    e.AccountHeld: _account,
    e.AccountReleased: _account,
    e.AgentAsk: _ask,
    e.AgentDone: _done,
    e.AgentExited: _exited,
    e.AgentStopped: _exited,
    e.AgentLost: _lost,
    e.AgentReport: lambda facts, _event, _body: facts,
    e.AgentReportInvalid: lambda facts, _event, _body: facts,
    e.HeadMoved: _head,
    e.BaseChanged: _base_changed,
    e.BranchRebased: _rebased,
    e.RebaseRefused: _not_rebased,
    e.WorkPublished: _published,
    e.WorkPushed: _pushed,
    e.IssueTracked: _tracked,
    e.MessageQueued: _queued,
    e.DigestSent: _digested,
    e.MessageHeld: _held,
    e.MessageReleased: _released,
    e.MessageDelivered: _delivered,
    e.MessageFailed: _message_failed,
}
