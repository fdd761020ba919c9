"""What people read about one session: its timeline, and where its work is saved."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from typing import Any

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.errors import AoError
from agent_orchestrator.sessions.part import Core
from agent_orchestrator.sessions.session_view import SessionViews
from agent_orchestrator.sessions.workspace_access import read_work
from agent_orchestrator.views.saved_work import WorkState, saved_work_sentence
from agent_orchestrator.views.timeline import Timeline, entry_json, state_sentence

MAX_CACHED_TIMELINES = 50
"""The number of timelines that are kept to be continued."""
EVENTS_PER_READ = 2000
"""The number of events that are read at a time."""


class TimelineReader:
    """Reads timelines and the state of sessions' work; changes nothing."""

    def __init__(self, core: Core, views: SessionViews) -> None:
        self.core = core
        self.flow = core.flow
        self.views = views
        self._timelines: OrderedDict[str, Timeline] = OrderedDict()

    async def timeline(self, session: str, limit: int) -> dict[str, Any]:
        """Return what happened to a session, oldest first, and its state in one sentence."""
        facts = self.flow.sessions[session]
        rules = self.flow.rules(facts.project, facts.spec.profile)
        story = await self._read_timeline(session, {rule.name: rule.retries for rule in rules})
        facts = self.flow.sessions[session]
        state = state_sentence(facts, self.views.status(facts), story.entries, rules, _local_time)
        return {"sentence": state, "entries": [entry_json(entry) for entry in story.entries[-limit:]]}

    async def _read_timeline(self, session: str, retries: dict[str, int | None]) -> Timeline:
        """Return the session's story, continued from where it was last read."""
        story = self._timelines.setdefault(session, Timeline())
        self._timelines.move_to_end(session)
        while len(self._timelines) > MAX_CACHED_TIMELINES:
            self._timelines.popitem(last=False)
        while page := await self.flow.store.events(story.seq, EVENTS_PER_READ, session=session):
            for event in page:
                if event.seq > story.seq:  # another caller may have added it meanwhile
                    story.add(event, retries)
            if len(page) < EVENTS_PER_READ:
                break
        return story

    async def saved_work_json(self, session: str) -> dict[str, Any]:
        """Return where a session's work is, and whether it is saved."""
        facts, work = await read_work(self.core, session, self._read_work)
        workspace = facts.workspace
        return {
            "path": workspace.path if workspace and work.has_workspace else None,
            "branch": facts.branch,
            "base": facts.base,
            "head": facts.head,
            "pushed": facts.pushed_head,
            "ahead": work.ahead,
            "uncommitted": list(work.uncommitted),
            "rescues": list(facts.rescues),
            "ports": list(facts.spec.ports),
            "sentence": saved_work_sentence(facts, work),
        }

    async def _read_work(self, git: Git, facts: SessionFacts, present: bool) -> tuple[SessionFacts, WorkState]:
        workspace = facts.workspace
        if workspace is None:
            return facts, WorkState()
        try:
            changes = await git.status() if present else []
            tip = "HEAD" if present else facts.head or facts.branch
            ahead = await git.count_commits(f"{workspace.base_commit}..{tip}") if workspace.base_commit else None
        except AoError:  # a damaged workspace or branch: return what is known all the same
            return facts, WorkState(has_workspace=present)
        return facts, WorkState(present, tuple(sorted({change.path for change in changes})), ahead)


def _local_time(time: float) -> str:
    """Return a time as hours and minutes of the daemon's local time."""
    return datetime.fromtimestamp(time).strftime("%H:%M")
