"""A session as people and programs see it: derived from facts at the moment of looking, the same everywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from agent_orchestrator.base.text.redaction import KNOWN
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import rfc3339
from agent_orchestrator.core.facts import Collision, HomeFacts, Message, SessionFacts
from agent_orchestrator.core.pull_request import CheckRun
from agent_orchestrator.core.reactions import stuck_after
from agent_orchestrator.core.status import IN_TURN, Status, derive

Met = Mapping[str, Collision]
"""Another session → what both will collide on."""

MOST_FILES = 5
"""Of one collision that are named with a session."""


@dataclass(frozen=True, slots=True)
class _Text:
    """A session as it is listed, for as long as that is true."""

    facts: SessionFacts
    met: Met
    until: float
    text: str


class Views:
    """Sessions as JSON. Bodies of lists are kept until something changes."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.untold: Callable[[str | None], list[dict[str, Any]]] = lambda _project: []
        """Notifiers that do not work."""
        self._texts: dict[str, _Text] = {}
        self._bodies: dict[str | None, tuple[float, bytes]] = {}
        flow.on_change.append(self._on_change)

    def status(self, facts: SessionFacts, now: float | None = None) -> Status:
        """A session's status now."""
        rules = self.flow.rules(facts.project, facts.spec.profile)
        status = derive(facts, self.flow.clock() if now is None else now, stuck_after(rules))
        if (home := self.flow.elsewhere(facts.id)) and not facts.stopped:
            status = replace(status, why=f"{status.why}; it lives in {home}, whose daemon is not the active one")
        return status

    def session(self, facts: SessionFacts) -> dict[str, Any]:
        """One session; every key is always there."""
        return session_json(facts, self.status(facts), self.met(facts))

    def met(self, facts: SessionFacts) -> Met:
        """Whom its branch will collide with: elder sessions by its own facts, younger ones by theirs."""
        younger = {
            one.id: one.collisions[facts.id] for one in self.flow.sessions.values() if facts.id in one.collisions
        }
        return {**facts.collisions, **younger}

    def body(self, project: str | None) -> bytes:
        """The list of all sessions, or of one project's, as JSON text."""
        now = self.flow.clock()
        kept = self._bodies.get(project)
        if kept and now < kept[0]:
            return kept[1]
        chosen = [facts for facts in self.flow.sessions.values() if project in (None, facts.project)]
        met = _all_met(chosen)
        ordered = sorted(chosen, key=lambda facts: facts.created_at)
        texts = [self._text(facts, now, met.get(facts.id, {})) for facts in ordered]
        unread = outages_json(self.flow.home, project)
        more = KNOWN.text(f', "unread": {json.dumps(unread, ensure_ascii=False)}') if unread else ""
        if untold := self.untold(project):
            more += KNOWN.text(f', "untold": {json.dumps(untold, ensure_ascii=False)}')
        body = f'{{"sessions": [{", ".join(one.text for one in texts)}]{more}}}'.encode()
        self._bodies[project] = (min((now + 3600.0, *(one.until for one in texts))), body)
        return body

    def _text(self, facts: SessionFacts, now: float, met: Met) -> _Text:
        """A session's JSON text, made anew only when its facts or its collisions changed, or when time alone changes its status."""
        kept = self._texts.get(facts.id)
        if kept is None or kept.facts is not facts or kept.met != met or now >= kept.until:
            text = KNOWN.text(json.dumps(session_json(facts, self.status(facts, now), met), ensure_ascii=False))
            kept = self._texts[facts.id] = _Text(facts, met, self.changes_at(facts, now) or inf, text)
        return kept

    def changes_at(self, facts: SessionFacts, now: float) -> float | None:
        """A status can change by time alone: silence becomes stuck, and then longer; a limit ends. When it does so next."""
        moments: list[float] = []
        if facts.limit_until:
            moments.append(facts.limit_until)
        if facts.live and facts.activity.state in IN_TURN:
            heard = max(facts.activity.at, facts.heard_at)
            stuck = heard + stuck_after(self.flow.rules(facts.project, facts.spec.profile))
            moments += [stuck, now + 60.0 - (now - heard) % 60.0] if stuck <= now else [stuck]
        return min((moment for moment in moments if moment > now), default=None)

    def forget(self) -> None:
        """Something that no event tells of changed: rules, projects."""
        self._bodies.clear()
        self._texts.clear()

    def _on_change(self, _changes: Sequence[Change]) -> None:
        self._bodies.clear()


def _all_met(sessions: Iterable[SessionFacts]) -> dict[str, dict[str, Collision]]:
    """The same for all sessions at once."""
    met: dict[str, dict[str, Collision]] = {}
    for facts in sessions:
        for other, one in facts.collisions.items():
            met.setdefault(facts.id, {})[other] = one
            met.setdefault(other, {})[facts.id] = one
    return met


def outages_json(home: HomeFacts, project: str | None) -> list[dict[str, Any]]:
    """Forges and trackers that cannot be read."""
    return [
        {
            "project": one.project,
            "name": one.name,
            "why": f"{one.reason}: {one.remedy}" if one.remedy else one.reason,
            "since": rfc3339(one.since),
        }
        for one in home.outages.values()
        if project in (None, one.project)
    ]


def session_json(facts: SessionFacts, status: Status, met: Met) -> dict[str, Any]:
    """Facts and status in the shape that the API promises."""
    launch, progress, usage, spec = facts.launch, facts.progress, facts.usage, facts.spec
    return {
        "id": facts.id,
        "name": facts.name,
        "project": facts.project,
        "task": spec.task,
        "kind": spec.kind,
        "title": spec.title,
        "status": status.name,
        "activity": facts.activity.state,
        "evidence": {"source": status.source, "at": rfc3339(status.at)},
        "column": status.column,
        "branch": facts.branch,
        "base": facts.base,
        "stack": spec.stack if facts.stacked else None,
        "head": facts.head,
        "workspacePath": facts.place.path if facts.place and facts.place.present else None,
        "agent": spec.agent,
        "profile": spec.profile,
        "runtime": spec.runtime,
        "node": facts.node,
        "pid": launch.handle.get("pid") if launch and not launch.ended else None,
        "exitCode": exit_code(facts),
        "issue": spec.issue,
        "pr": pr_json(facts),
        "progress": {
            "done": progress.done,
            "total": progress.total,
            "step": progress.step,
            "testsPassed": tests_passed(facts),
        },
        "usage": {"input": usage.input, "output": usage.output, "usd": usage.usd},
        "attempts": {trigger: episode.attempts for trigger, episode in facts.episodes.items()},
        "waitingFor": status.waiting_for,
        "held": len(facts.held_messages),
        "why": status.why,
        "collides": [
            {"session": other, "kind": one.kind, "files": list(one.files[:MOST_FILES])} for other, one in met.items()
        ],
        "notes": list(facts.notes),
        "lastOutput": launch.output or None if launch and launch.ended else None,
        "createdAt": rfc3339(facts.created_at),
        "updatedAt": rfc3339(facts.updated_at),
    }


def check_json(run: CheckRun) -> dict[str, Any]:
    """Return one check of a pull request in the shape that the API promises."""
    url = run.url or (f"file://{run.log}" if run.log else None)
    return {
        "name": run.name,
        "state": run.state,
        "url": url,
        "onBase": run.is_known,
        "passed": run.passed,
        "failed": run.failed,
        "skipped": run.skipped,
        "new": len(run.new),
        "known": len(run.known),
        "reason": run.reason or run.dropped or None,
    }


def tests_passed(facts: SessionFacts) -> int | None:
    """By the checks at the newest commit, or by the agent's own word."""
    runs = facts.pr.checks.values() if facts.pr else ()
    counted = [run.passed for run in runs if run.passed is not None and run.head == facts.head]
    return sum(counted) if counted else facts.progress.tests_passed


def pr_json(facts: SessionFacts) -> dict[str, Any] | None:
    """The pull request in the shape that the API promises."""
    pr, head = facts.pr, facts.head
    if pr is None:
        return None
    verdict = pr.verdict(head)
    return {
        "number": pr.number,
        "url": pr.url,
        "title": pr.title,
        "state": pr.shown_state,
        "head": head,
        "base": pr.base,
        "checks": [check_json(run) for run in pr.checks.values() if run.head == head],
        "review": "pending" if verdict == "none" and not pr.draft else verdict,
        "mergeable": pr.mergeable(head, facts.base_head),
    }


def exit_code(facts: SessionFacts) -> int | None:
    """As a shell would tell it: 128 and the signal's number for a killed agent."""
    launch = facts.launch
    if launch is None or not launch.ended:
        return None
    return 128 + launch.signal if launch.signal else launch.code


def message_json(message: Message) -> dict[str, Any]:
    """A message and its fate."""
    return {
        "messageId": message.id,
        "state": message.state,
        "content": message.text,
        "sender": message.sender,
        "reason": message.reason or None,
        "createdAt": rfc3339(message.at),
        "deliveredAt": rfc3339(message.delivered_at) if message.delivered_at else None,
        "acknowledgedAt": rfc3339(message.acknowledged_at) if message.acknowledged_at else None,
    }
