"""From events to facts: `reduce(facts, event) -> facts`. Pure.

Two kinds of events are folded here. *Decisions* (created, admitted, launched, stop requested) come only from the
daemon, in the order of the log. *Observations* (what the agent reported, how its process ended, where HEAD is) come
from outside: late, twice or out of order. Therefore an observation of an earlier launch changes nothing, an older one
never replaces a newer one, a message's state only rises, and an end is final.
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
"""Number of settled messages that a session's facts keep."""

KEPT_HOLD = 3600.0
"""Seconds that an account hold is kept after its release."""
MOST_MODELS = 50
"""Number of models of one day whose usage is counted separately in a session."""
LONGEST_MODEL = 200
"""Longest model name that is kept, in characters."""
OTHER_MODELS = "other models"
"""The name under which the usage of further models is counted."""
LONGEST_LIMIT = 8 * 86400.0
"""Seconds; a reset time of a usage limit that is further away is ignored as implausible."""

_RANK = {"queued": 0, "held": 1, "failed": 2, "delivered": 3, "acknowledged": 5}
"""Order of a message's states; the state only rises."""
_RANK_IN_DOUBT = 4
"""Rank of a message that was delivered and failed: its agent was lost before it took the message up."""


def reduce(facts: SessionFacts | None, event: Event) -> SessionFacts | None:
    """Return one session's facts after an event; an event without a session, or of another launch, leaves them unchanged."""
    if isinstance(event.body, e.SessionCreated):
        return facts or _create_facts(event, event.body)
    step = _STEPS.get(type(event.body))
    if facts is None or step is None:
        return facts
    is_other_launch = event.generation and event.generation != facts.generation
    if is_other_launch and not isinstance(event.body, e.AgentLaunched | e.AgentUsage | e.AgentAck):
        return facts  # usage and acknowledgements of an earlier launch do count
    after = _update_positions(step(facts, event, event.body), event)
    return closed(after, derive(after, event.time)) if after.episodes or after.offers else after


def reduce_home(facts: HomeFacts, event: Event) -> HomeFacts:
    """Return the home's facts after an event."""
    body, project = event.body, event.project or ""
    match body:
        case e.ProjectRegistered():
            registered = ProjectFacts(project, body.path, body.config, announced=body.announced)
            return replace(facts, projects={**facts.projects, project: registered})
        case e.ProjectRemoved() if project in facts.projects:
            removed = replace(facts.projects[project], removed=True)
            outages = {key: entry for key, entry in facts.outages.items() if entry.project != project}
            return replace(facts, projects={**facts.projects, project: removed}, outages=outages)
        case e.CommandsTrusted():
            return replace(facts, trusted={**facts.trusted, body.digest: body.file})
        case e.CommandsProposed():
            return replace(facts, proposed={**facts.proposed, body.digest: body.file})
        case e.PermissionAllowed() | e.PermissionWithdrawn():
            rule = (body.tool, body.command)
            rest = tuple(entry for entry in facts.allowed.get(project, ()) if entry != rule)
            rules = (*rest, rule) if isinstance(body, e.PermissionAllowed) else rest
            return replace(facts, allowed={**facts.allowed, project: rules})
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
            extended = replace(task, sessions=(*task.sessions, event.session))
            return replace(facts, tasks={**facts.tasks, body.task: extended})
        case e.AccountHeld():
            return replace(facts, accounts=_with_hold(facts.accounts, event, body))
        case e.AccountReleased():
            hold = facts.accounts.get(hold_key(body.account, body.model))
            if hold is None or hold.released is not None:
                return facts
            released = replace(hold, released=event.time)
            return replace(facts, accounts={**facts.accounts, hold.key: released})
        case e.AllComplete():
            announced = dict.fromkeys((*facts.completed.get(project, ()), *body.sessions))
            return replace(facts, completed={**facts.completed, project: tuple(announced)})
        case e.NotificationHeld():
            notice = HeldNotice(event.session or "", body.title, body.message, body.level, body.until)
            return replace(facts, quiet={**facts.quiet, project: (*facts.quiet.get(project, ()), notice)})
        case e.ReadingFailed():
            outage = Outage(project, body.name, body.reason, body.remedy, body.since, body.called)
            return replace(facts, outages={**facts.outages, outage_key(project, body.name): outage})
        case e.ReadingResumed():
            resumed_key = outage_key(project, body.name)
            return replace(facts, outages={key: entry for key, entry in facts.outages.items() if key != resumed_key})
        case e.QuietHoursEnded():
            later = tuple(entry for entry in facts.quiet.get(project, ()) if entry.until > body.until)
            return replace(facts, quiet={**facts.quiet, project: later})
    nodes = fold_nodes.reduce_nodes(facts.nodes, event)
    if nodes is not facts.nodes:
        return replace(facts, nodes=nodes)
    fixes = reduce_fixes(facts.fixes, event)
    if fixes is not facts.fixes:
        return replace(facts, fixes=fixes)
    plans = reduce_plans(facts.plans, event)
    return replace(facts, plans=plans) if plans is not facts.plans else reduce_issues(facts, event)


def _with_hold(accounts: Mapping[str, AccountHold], event: Event, body: e.AccountHeld) -> dict[str, AccountHold]:
    """Return the account holds with a new one added, and without those that were released long ago.

    If the account already has a hold that ends later, that one stays in force.
    """
    key, session = hold_key(body.account, body.model), event.session or ""
    hold = AccountHold(body.account, body.model, body.until, event.time, body.named, body.times, body.reason, session)
    earlier = accounts.get(key)
    if earlier is not None and earlier.released is None and earlier.until > max(body.until, event.time):
        hold = replace(earlier, times=max(earlier.times, body.times))
    remaining = {
        name: other
        for name, other in accounts.items()
        if other.released is None or other.released > event.time - KEPT_HOLD
    }
    return {**remaining, key: hold}


def outage_key(project: str, name: str) -> str:
    """Return the name of a project's forge or tracker that is unique among all projects."""
    return f"{project} {name}"


def spool_key(session: str, generation: int, start: int, end: int) -> str:
    """Return the key of an event read from the spool: it identifies the line, and says where the next one begins."""
    return f"spool:{session}:{generation}:{start}:{end}"


def ended_key(session: str, generation: int) -> str:
    """Return the key of a launch's end; it is recorded once, whichever observer reports it first."""
    return f"ended:{session}:{generation}"


def heard_key(session: str, place: str, start: int, end: int, number: int) -> str:
    """Return the key of an event read from an agent's own records: the same for every reading; it says where to continue."""
    return f"heard:{session}:{place.replace(':', '-')}:{start}:{end}:{number}"


def _update_positions(facts: SessionFacts, event: Event) -> SessionFacts:
    """Return the facts with the event's time and number, and with how far the spool and the agent's records were read."""
    spool, heard_at, cursors = facts.spool, facts.heard_at, facts.cursors
    if event.generation == facts.generation and (event.source in ("spool", "mcp") or event.key.startswith("heard:")):
        heard_at = max(heard_at, event.time)
        spool = max(spool, _spool_end(event.key))
        if match := _HEARD_KEY.fullmatch(event.key):
            cursors = {**cursors, match["place"]: max(cursors.get(match["place"], 0), int(match["end"]))}
    return replace(
        facts,
        updated_at=max(facts.updated_at, event.time),
        seq=max(facts.seq, event.seq),
        spool=spool,
        heard_at=heard_at,
        cursors=cursors,
    )


_HEARD_KEY = re.compile(r"heard:[^:]+:(?P<place>[^:]+):[0-9]+:(?P<end>[0-9]+):[0-9]+", re.ASCII)


def _spool_end(key: str) -> int:
    """Return the position in the spool that an event's key names, or 0 for another key."""
    end = key.rpartition(":")[2]
    return int(end) if key.startswith("spool:") and end.isascii() and end.isdigit() else 0


def _is_outdated(facts: SessionFacts, event: Event, *, is_own_report: bool = True) -> bool:
    """Return whether a newer activity is already recorded.

    The agent's first own report counts whatever its time, because until then the activity is only inferred by others.
    """
    return event.time < facts.activity.at and (facts.spoke or not is_own_report)


def _create_facts(event: Event, body: e.SessionCreated) -> SessionFacts:
    """Return the facts of a new session."""
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


def _apply_session_reassigned(facts: SessionFacts, _event: Event, body: e.SessionReassigned) -> SessionFacts:
    """Change the agent, model and account of a session that was not launched yet."""
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


def _apply_session_admitted(facts: SessionFacts, _event: Event, _body: e.SessionAdmitted) -> SessionFacts:
    """Mark the session as admitted to start."""
    return replace(facts, admitted=True, waiting_for="", turn_since=None)


def _apply_session_waiting(facts: SessionFacts, event: Event, body: e.SessionWaiting) -> SessionFacts:
    """Record what the session waits for before its start; once it waits only for a slot, keep the time since when."""
    if facts.admitted:
        return facts
    since = (facts.turn_since or event.time) if body.turn else None
    return replace(facts, waiting_for=body.reason, turn_since=since)


def _apply_start_put_off(facts: SessionFacts, _event: Event, body: e.StartPutOff) -> SessionFacts:
    """Withdraw the admission of a session that cannot start, and count a new run."""
    if facts.live or not facts.admitted or facts.wanted != "run":
        return facts
    return replace(facts, admitted=False, waiting_for=body.reason, turn_since=None, run=facts.run + 1)


def _apply_session_failed(facts: SessionFacts, event: Event, body: e.SessionFailed) -> SessionFacts:
    """Record the step that failed."""
    return replace(facts, failure=Failure(body.step, body.error, body.remedy, event.time))


def _apply_workspace_created(facts: SessionFacts, _event: Event, body: e.WorkspaceCreated) -> SessionFacts:
    """Record the session's workspace; one that is created again without a base commit keeps the earlier one."""
    notes = facts.notes + tuple(note for note in body.notes if note not in facts.notes)
    workspace = Place(body.path, body.base_commit, body.git_dir, body.git_env, shared=body.shared, copied=body.copied)
    if facts.place and body.base_commit == "":
        workspace = replace(workspace, base_commit=facts.place.base_commit)
    return replace(
        facts,
        place=workspace,
        branch=body.branch,
        base=body.base,
        head=body.head,
        notes=notes,
        forgot=facts.forgot or body.forgot,
    )


def _apply_agent_launched(facts: SessionFacts, event: Event, body: e.AgentLaunched) -> SessionFacts:
    """Record a launch and reset what belonged to the one before it."""
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


def _apply_stop_requested(facts: SessionFacts, event: Event, body: e.StopRequested) -> SessionFacts:
    """Record that the session is to be stopped; a second request retries a stop that failed."""
    if facts.stopped:
        return facts
    is_retry = facts.wanted == "stop" and facts.failure is not None
    requester = event.source or "person"
    return replace(facts, wanted="stop", keep=body.keep, failure=None, run=facts.run + is_retry, stopped_by=requester)


def _apply_session_stopped(facts: SessionFacts, _event: Event, body: e.SessionStopped) -> SessionFacts:
    """Record that the session was stopped, and fail its undelivered messages."""
    workspace = facts.place and replace(facts.place, present=body.kept)
    node = facts.node if body.kept else None
    stopped = _fail_pending(facts, "the session was stopped")
    return replace(
        stopped, stopped=True, saved=body.saved, place=workspace, node=node, moving="", unseen="", unseen_since=None
    )


def _apply_restore_requested(facts: SessionFacts, _event: Event, _body: e.RestoreRequested) -> SessionFacts:
    """Begin a new run of a stopped session."""
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


def _apply_work_rescued(facts: SessionFacts, _event: Event, body: e.WorkRescued) -> SessionFacts:
    """Add the ref of rescued work as the newest one."""
    return replace(facts, rescues=(*(ref for ref in facts.rescues if ref != body.ref), body.ref))


def _apply_timer_due(facts: SessionFacts, event: Event, body: e.TimerDue) -> SessionFacts:
    """End the usage limit of a session when its time has passed."""
    is_limited = facts.activity.state == "limited" or facts.limit_until is not None
    if body.name == "limit" and is_limited and (facts.limit_until or 0.0) <= event.time:
        activity = ActivityFact("unknown", "clock", event.time) if facts.activity.state == "limited" else facts.activity
        return replace(facts, limited_at=None, limit_until=None, activity=activity)
    return facts


# -- What the agent says -----------------------------------------------------------------------------------------------


def _apply_agent_activity(facts: SessionFacts, event: Event, body: e.AgentActivity) -> SessionFacts:
    """Record the agent's activity, unless a newer one or a better source is recorded."""
    # A screen reading of the agent's plugin counts as the agent's own report: the plugin knows what its records leave out.
    is_own_report = event.source not in ("screen", "terminal", "process") or event.key.startswith(("now:", "heard:"))
    if not facts.live or _is_outdated(facts, event, is_own_report=is_own_report) or (facts.spoke and not is_own_report):
        return facts
    is_answered = body.state in ("active", "idle") and is_own_report
    return replace(
        facts,
        activity=ActivityFact(body.state, event.source, event.time, body.detail),
        spoke=facts.spoke or is_own_report,
        permission=facts.permission if body.state == "blocked" else None,
        question=facts.asked
        if is_answered
        else facts.question or (body.detail if body.state == "waiting_input" else ""),
        limited_at=event.time if body.state == "limited" and not facts.limited else facts.limited_at,
        limit_until=None if body.state == "active" else facts.limit_until,
        done=None if body.state == "active" else facts.done,
    )


def _apply_permission_asked(facts: SessionFacts, event: Event, body: e.PermissionAsked) -> SessionFacts:
    """Record a permission request; the agent is blocked until it is answered."""
    if not facts.live or _is_outdated(facts, event):
        return facts
    request_text = f"{body.tool}: {body.command}" if body.command else body.tool
    request = Asked(body.tool, body.command, body.reason, body.request, event.time)
    return replace(
        facts, permission=request, activity=ActivityFact("blocked", event.source, event.time, request_text), spoke=True
    )


def _apply_turn_ended(facts: SessionFacts, event: Event, body: e.AgentTurnEnded) -> SessionFacts:
    """Record the end of a turn; the agent waits for input if its last words ask a question."""
    if not facts.live or _is_outdated(facts, event):
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


def _apply_agent_conversation(facts: SessionFacts, _event: Event, body: e.AgentConversation) -> SessionFacts:
    """Record the id of the agent's conversation."""
    return replace(facts, conversation=body.conversation)


def _ack(facts: SessionFacts, event: Event, body: e.AgentAck) -> SessionFacts:
    """Mark a message as acknowledged: the named one, or else the oldest delivered one."""
    delivered_ids = [message.id for message in facts.messages if message.state == "delivered"]
    facts = _raise_message(facts, body.message or next(iter(delivered_ids), ""), "acknowledged", event.time)
    return replace(facts, acknowledges=True)


def _apply_agent_progress(facts: SessionFacts, _event: Event, body: e.AgentProgress) -> SessionFacts:
    """Record the agent's progress; fields that the event leaves out keep their value."""
    earlier = facts.progress
    return replace(
        facts,
        progress=Progress(
            done=earlier.done if body.done is None else body.done,
            total=earlier.total if body.total is None else body.total,
            step=body.step or earlier.step,
            tests_passed=earlier.tests_passed if body.tests_passed is None else body.tests_passed,
        ),
    )


def _apply_agent_usage(facts: SessionFacts, event: Event, body: e.AgentUsage) -> SessionFacts:
    """Add tokens and cost to the session's total and to the day and model."""
    used = Usage(body.input, body.output, body.cache_read, body.cache_write, body.usd, body.forge)
    key = _usage_key(facts, e.rfc3339(event.time)[:10], body.model[:LONGEST_MODEL])
    spent = {**facts.spent, key: facts.spent.get(key, Usage()).plus(used)}
    return replace(facts, usage=facts.usage.plus(used), spent=spent)


def _usage_key(facts: SessionFacts, day: str, model: str) -> str:
    """Return the key under which a day's usage of a model is counted.

    An agent can name any number of models, so those beyond `MOST_MODELS` per day share one key.
    """
    key = f"{day} {model}"
    if key in facts.spent or sum(other_key.startswith(f"{day} ") for other_key in facts.spent) < MOST_MODELS:
        return key
    return f"{day} {OTHER_MODELS}"


def _apply_budget_raised(facts: SessionFacts, _event: Event, body: e.BudgetRaised) -> SessionFacts:
    """Count one more raise of a budget."""
    key = f"{body.scope} {body.day}".strip()
    return replace(facts, raised={**facts.raised, key: facts.raised.get(key, 0) + 1})


def _apply_agent_limit(facts: SessionFacts, event: Event, body: e.AgentLimit) -> SessionFacts:
    """Record that the agent met its account's usage limit, and its plausible reset time."""
    if not facts.live or _is_outdated(facts, event):
        return facts
    until = believable(body.resets_at, event.time)
    activity = ActivityFact("limited", event.source, event.time)
    return replace(
        facts, limited_at=event.time, limit_until=until, limit_model=body.model, activity=activity, spoke=True
    )


def believable(resets_at: float | None, now: float) -> float | None:
    """Return the reset time that an agent named, or None if it is past or more than `LONGEST_LIMIT` away."""
    return resets_at if resets_at is not None and now < resets_at <= now + LONGEST_LIMIT else None


def _apply_account_hold(facts: SessionFacts, event: Event, body: e.AccountHeld | e.AccountReleased) -> SessionFacts:
    """Set when a session that met the usage limit continues: at the end of its account's hold, or now if it was released."""
    if not facts.limited:
        return facts
    if isinstance(body, e.AccountReleased):
        return replace(facts, limit_until=event.time)
    return replace(facts, limit_until=body.until if body.waits is None else max(body.until, body.waits))


def _apply_agent_ask(facts: SessionFacts, event: Event, body: e.AgentAsk) -> SessionFacts:
    """Record a question of the agent."""
    if not facts.live or _is_outdated(facts, event):
        return facts
    activity = ActivityFact("waiting_input", event.source, event.time, body.question)
    open_question = body.question if body.stands else facts.asked
    return replace(facts, question=body.question, asked=open_question, activity=activity, spoke=True)


def _apply_agent_done(facts: SessionFacts, event: Event, body: e.AgentDone) -> SessionFacts:
    """Record the agent's summary of its finished work."""
    activity = facts.activity
    if facts.live and not _is_outdated(facts, event):
        activity = ActivityFact("idle", event.source, event.time, body.summary)
    return replace(facts, done=body.summary, activity=activity, question="", asked="", spoke=True)


def _apply_agent_exited(facts: SessionFacts, event: Event, body: e.AgentExited | e.AgentStopped) -> SessionFacts:
    """Record the end of the agent's process, and fail the messages that it can no longer receive."""
    if facts.launch is None or facts.launch.ended:
        return facts
    is_stopped = isinstance(body, e.AgentStopped)
    launch = replace(
        facts.launch,
        ended=True,
        stopped=is_stopped,
        code=body.code,
        signal=body.signal,
        ended_at=event.time,
        output=body.output if isinstance(body, e.AgentExited) else "",
        reason=body.reason if isinstance(body, e.AgentExited) else "",
    )
    exit_text = "stopped" if is_stopped else "killed" if body.signal else f"exit {body.code}"
    limited_at = facts.limited_at if facts.activity.state == "limited" and not is_stopped else None
    if is_stopped and facts.moving:
        facts = _doubt_messages(facts, "was moved")
    facts = replace(facts, launch=launch, activity=ActivityFact("exited", event.source, event.time))
    facts = replace(facts, question="", permission=None, limited_at=limited_at)
    if facts.limited:
        return facts  # it is started again after the limit, and receives its messages then
    if facts.launched_run != facts.run and facts.wanted == "run":
        return facts  # a new launch is due, and receives its messages then
    return _fail_pending(facts, f"the agent ended ({exit_text}) before it was delivered", before=event.time)


def _apply_agent_lost(facts: SessionFacts, event: Event, body: e.AgentLost) -> SessionFacts:
    """Record that the agent's process was lost, and doubt the messages it may not have read."""
    if facts.launch is None or facts.launch.ended:
        return facts
    in_turn = facts.activity.state in {*IN_TURN, "blocked"}
    launch = replace(facts.launch, ended=True, lost=body.reason, cut_short=in_turn, ended_at=event.time)
    activity = ActivityFact("interrupted", event.source, event.time, body.reason)
    facts = _doubt_messages(facts, f"was lost ({body.reason})")
    return replace(facts, launch=launch, activity=activity, permission=None)


def _apply_agent_output(facts: SessionFacts, event: Event, _body: e.AgentOutput) -> SessionFacts:
    """Record the time of terminal output as a sign of life."""
    return replace(facts, heard_at=max(facts.heard_at, event.time))


def _apply_head_moved(facts: SessionFacts, _event: Event, body: e.HeadMoved) -> SessionFacts:
    """Record the session's head; a new commit clears the reason of a failed merge."""
    pr = replace(facts.pr, refused="") if facts.pr and body.head != facts.head else facts.pr
    return replace(facts, head=body.head, pr=pr)


def _apply_base_changed(facts: SessionFacts, _event: Event, body: e.BaseChanged) -> SessionFacts:
    """Record another base branch, and drop the results that were compared with the old one."""
    pr = replace(facts.pr, base=body.base, compared=None, conflicts=(), refused="") if facts.pr else None
    old_base_commit = body.below if facts.place else None
    return replace(facts, base=body.base, base_head=None, below=old_base_commit or None, unmoved=None, pr=pr)


def _apply_branch_rebased(facts: SessionFacts, _event: Event, body: e.BranchRebased) -> SessionFacts:
    """Record that the branch was moved to its base."""
    return replace(facts, below=None, unmoved=None, place=facts.place and replace(facts.place, base_commit=body.onto))


def _apply_rebase_refused(facts: SessionFacts, _event: Event, body: e.RebaseRefused) -> SessionFacts:
    """Record the head at which the branch could not be moved to its base."""
    return replace(facts, unmoved=body.head)


def _apply_work_published(facts: SessionFacts, _event: Event, body: e.WorkPublished) -> SessionFacts:
    """Record the head that was brought into the main repository."""
    return replace(facts, published=body.head)


def _apply_issue_tracked(facts: SessionFacts, _event: Event, body: e.IssueTracked) -> SessionFacts:
    """Record the state that was reported to the issue tracker."""
    return replace(facts, tracked=body.state)


def _apply_work_pushed(facts: SessionFacts, _event: Event, body: e.WorkPushed) -> SessionFacts:
    """Record the head that was pushed to the forge."""
    return replace(facts, pushed=body.head)


# -- Messages ----------------------------------------------------------------------------------------------------------


def _apply_message_queued(facts: SessionFacts, event: Event, body: e.MessageQueued) -> SessionFacts:
    """Add a message; the task goes before all others, and a message to a stopped session fails."""
    if any(message.id == body.message for message in facts.messages):
        return facts
    message = Message(body.message, body.text, body.sender, event.time, interrupt=body.interrupt, task=body.task)
    if body.hold:
        message = replace(message, state="held", reason=body.hold, needs_word=True)
    if facts.stopped:
        message = replace(message, state="failed", reason="the session was stopped")
    position = 0 if body.task else len(facts.messages)
    return replace(
        facts, messages=_drop_old_messages((*facts.messages[:position], message, *facts.messages[position:]))
    )


def _apply_digest_sent(facts: SessionFacts, event: Event, body: e.DigestSent) -> SessionFacts:
    """Record the digest sent to a coordinating agent; after one that failed, the next starts where the failed one did."""
    last_message = next((message for message in facts.messages if message.id == facts.digest.message), None)
    has_failed = last_message is not None and last_message.state == "failed"
    since = facts.digest.since if has_failed else facts.digest.upto
    return replace(facts, digest=Digest(body.upto, body.message, since, event.time))


def _apply_message_held(facts: SessionFacts, event: Event, body: e.MessageHeld) -> SessionFacts:
    """Mark a message as held, with the reason."""
    return _raise_message(facts, body.message, "held", event.time, body.reason)


def _apply_message_released(facts: SessionFacts, _event: Event, body: e.MessageReleased) -> SessionFacts:
    """Release a message that a person approved, so that it can be delivered."""

    def release(message: Message) -> Message:
        """Return the message without its hold if it is the approved one."""
        is_released = message.id == body.message and message.pending and message.needs_word
        return replace(message, needs_word=False, reason="") if is_released else message

    return replace(facts, messages=tuple(release(message) for message in facts.messages))


def _apply_message_delivered(facts: SessionFacts, event: Event, body: e.MessageDelivered) -> SessionFacts:
    """Mark a message as delivered; an agent that was waiting for it is active again."""
    facts = _raise_message(facts, body.message, "delivered", event.time, launch=event.generation)
    if facts.launch and facts.launch.lost:
        facts = _doubt_messages(facts, f"was lost ({facts.launch.lost})")
    if facts.asked:
        facts = replace(facts, question="", asked="")
    if facts.live and facts.activity.state in ("waiting_input", "starting") and facts.activity.at <= event.time:
        facts = replace(facts, question="", activity=ActivityFact("active", "message", event.time))
    return facts


def _apply_message_failed(facts: SessionFacts, event: Event, body: e.MessageFailed) -> SessionFacts:
    """Mark a message as failed, with the reason."""
    return _raise_message(facts, body.message, "failed", event.time, body.reason)


def rank(message: Message) -> int:
    """Return how far a message has come, as a number that only rises."""
    return _RANK_IN_DOUBT if message.state == "failed" and message.delivered_at is not None else _RANK[message.state]


def _raise_message(
    facts: SessionFacts, message_id: str, state: str, at: float, reason: str = "", launch: int = 0
) -> SessionFacts:
    """Raise the state of one message; a lower state is ignored, and a held message may be held for another reason."""

    def with_state(message: Message) -> Message:
        """Return the message with the new state if it is the named one and the state is higher."""
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

    return replace(facts, messages=tuple(with_state(message) for message in facts.messages))


def _doubt_messages(facts: SessionFacts, end_text: str) -> SessionFacts:
    """Mark delivered messages that the ended agent may not have read.

    If the agent acknowledges messages, an unacknowledged one has failed. Otherwise only messages delivered after the
    agent's last sign of life are in doubt; they stay delivered and get a reason.
    """
    assert facts.launch is not None
    has_acks = facts.acknowledges or facts.launch.inbox
    last_sign = max(facts.activity.at, facts.heard_at)

    def with_doubt(message: Message) -> Message:
        """Return the message as failed or in doubt if it was delivered to this launch and is not acknowledged."""
        if message.state != "delivered" or message.launch != facts.generation:
            return message
        if has_acks:
            text = (
                f"its agent {end_text} before it said that it took the message up; send it again if it was not followed"
            )
            return replace(message, state="failed", reason=text)
        is_in_doubt = (message.delivered_at or 0.0) >= last_sign
        return replace(message, reason=f"its agent {end_text}, and may not have read it") if is_in_doubt else message

    return replace(facts, messages=tuple(with_doubt(message) for message in facts.messages))


def _fail_pending(facts: SessionFacts, reason: str, before: float | None = None) -> SessionFacts:
    """Fail the messages that wait for delivery.

    With `before`, only those queued until then; messages that wait for a person's approval are kept, because they can
    be delivered to a later launch.
    """

    def with_failure(message: Message) -> Message:
        """Return the message as failed if it is affected."""
        is_affected = before is None or (message.at <= before and not message.needs_word)
        return replace(message, state="failed", reason=reason) if message.pending and is_affected else message

    return replace(facts, messages=tuple(with_failure(message) for message in facts.messages))


def _drop_old_messages(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Drop the oldest settled messages beyond `KEPT_MESSAGES`; the log still has them."""
    surplus = len(messages) - KEPT_MESSAGES
    if surplus <= 0:
        return messages
    settled = [message.id for message in messages if not message.pending][:surplus]
    return tuple(message for message in messages if message.id not in settled)


_STEPS: Mapping[type[e.Body], Step] = {
    **pull_requests.STEPS,
    **fold_nodes.STEPS,
    **clock.STEPS,
    e.SessionAdmitted: _apply_session_admitted,
    e.SessionReassigned: _apply_session_reassigned,
    e.SessionWaiting: _apply_session_waiting,
    e.StartPutOff: _apply_start_put_off,
    e.SessionFailed: _apply_session_failed,
    e.WorkspaceCreated: _apply_workspace_created,
    e.AgentLaunched: _apply_agent_launched,
    e.StopRequested: _apply_stop_requested,
    e.SessionStopped: _apply_session_stopped,
    e.RestoreRequested: _apply_restore_requested,
    e.WorkRescued: _apply_work_rescued,
    e.TimerDue: _apply_timer_due,
    e.AgentActivity: _apply_agent_activity,
    e.AgentConversation: _apply_agent_conversation,
    e.AgentTurnEnded: _apply_turn_ended,
    e.PermissionAsked: _apply_permission_asked,
    e.AgentAck: _ack,
    e.AgentProgress: _apply_agent_progress,
    e.AgentOutput: _apply_agent_output,
    e.AgentUsage: _apply_agent_usage,
    e.BudgetRaised: _apply_budget_raised,
    e.AgentLimit: _apply_agent_limit,
    e.AccountHeld: _apply_account_hold,
    e.AccountReleased: _apply_account_hold,
    e.AgentAsk: _apply_agent_ask,
    e.AgentDone: _apply_agent_done,
    e.AgentExited: _apply_agent_exited,
    e.AgentStopped: _apply_agent_exited,
    e.AgentLost: _apply_agent_lost,
    e.AgentReport: lambda facts, _event, _body: facts,
    e.AgentReportInvalid: lambda facts, _event, _body: facts,
    e.HeadMoved: _apply_head_moved,
    e.BaseChanged: _apply_base_changed,
    e.BranchRebased: _apply_branch_rebased,
    e.RebaseRefused: _apply_rebase_refused,
    e.WorkPublished: _apply_work_published,
    e.WorkPushed: _apply_work_pushed,
    e.IssueTracked: _apply_issue_tracked,
    e.MessageQueued: _apply_message_queued,
    e.DigestSent: _apply_digest_sent,
    e.MessageHeld: _apply_message_held,
    e.MessageReleased: _apply_message_released,
    e.MessageDelivered: _apply_message_delivered,
    e.MessageFailed: _apply_message_failed,
}
