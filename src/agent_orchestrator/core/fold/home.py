"""From events to facts: what is known of the whole home, its projects, tasks and accounts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import (
    AccountHold,
    HeldNotice,
    HomeFacts,
    Outage,
    ProjectFacts,
    TaskFacts,
    hold_key,
)
from agent_orchestrator.core.fixes import reduce_fixes
from agent_orchestrator.core.fold import nodes as fold_nodes
from agent_orchestrator.core.fold.issues import reduce_issues
from agent_orchestrator.core.plans import reduce_plans

RELEASED_HOLD_SECONDS = 3600.0
"""Seconds that an account hold is kept after its release."""


def reduce_home(facts: HomeFacts, event: Event) -> HomeFacts:
    """Return the home's facts after an event."""
    body, project = event.body, event.project or ""
    match body:
        case e.ProjectRegistered():
            registered = ProjectFacts(project, body.path, body.config, is_setup_check_announced=body.announced)
            return replace(facts, projects={**facts.projects, project: registered})
        case e.ProjectRemoved() if project in facts.projects:
            removed = replace(facts.projects[project], removed=True)
            outages = {key: entry for key, entry in facts.outages.items() if entry.project != project}
            return replace(facts, projects={**facts.projects, project: removed}, outages=outages)
        case e.CommandsTrusted():
            return replace(facts, trusted_commands={**facts.trusted_commands, body.digest: body.file})
        case e.CommandsProposed():
            return replace(facts, proposed_commands={**facts.proposed_commands, body.digest: body.file})
        case e.PermissionAllowed() | e.PermissionWithdrawn():
            rule = (body.tool, body.command)
            rest = tuple(entry for entry in facts.allowed_permissions.get(project, ()) if entry != rule)
            rules = (*rest, rule) if isinstance(body, e.PermissionAllowed) else rest
            return replace(facts, allowed_permissions={**facts.allowed_permissions, project: rules})
        case e.ConfigurationBroken():
            return replace(facts, unreadable_configs={**facts.unreadable_configs, body.file: body.error})
        case e.ConfigurationChanged():
            return replace(
                facts,
                unreadable_configs={
                    file: error for file, error in facts.unreadable_configs.items() if file != body.file
                },
            )
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
            return replace(facts, account_holds=_with_hold(facts.account_holds, event, body))
        case e.AccountReleased():
            hold = facts.account_holds.get(hold_key(body.account, body.model))
            if hold is None or hold.released_at is not None:
                return facts
            released = replace(hold, released_at=event.time)
            return replace(facts, account_holds={**facts.account_holds, hold.key: released})
        case e.AllComplete():
            announced = dict.fromkeys((*facts.completed_sessions.get(project, ()), *body.sessions))
            return replace(facts, completed_sessions={**facts.completed_sessions, project: tuple(announced)})
        case e.NotificationHeld():
            notice = HeldNotice(event.session or "", body.title, body.message, body.level, body.until)
            return replace(
                facts, held_notices={**facts.held_notices, project: (*facts.held_notices.get(project, ()), notice)}
            )
        case e.ReadingFailed():
            outage = Outage(project, body.name, body.reason, body.remedy, body.since, body.called)
            return replace(facts, outages={**facts.outages, outage_key(project, body.name): outage})
        case e.ReadingResumed():
            resumed_key = outage_key(project, body.name)
            return replace(facts, outages={key: entry for key, entry in facts.outages.items() if key != resumed_key})
        case e.QuietHoursEnded():
            later = tuple(entry for entry in facts.held_notices.get(project, ()) if entry.until > body.until)
            return replace(facts, held_notices={**facts.held_notices, project: later})
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
    if earlier is not None and earlier.released_at is None and earlier.until > max(body.until, event.time):
        hold = replace(earlier, consecutive_holds=max(earlier.consecutive_holds, body.times))
    remaining = {
        name: other
        for name, other in accounts.items()
        if other.released_at is None or other.released_at > event.time - RELEASED_HOLD_SECONDS
    }
    return {**remaining, key: hold}


def outage_key(project: str, name: str) -> str:
    """Return the name of a project's forge or tracker that is unique among all projects."""
    return f"{project} {name}"
