"""What people read of one session: its story, and where its work is."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from typing import Any

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.errors import AoError
from agent_orchestrator.sessions.plugins import Plugins
from agent_orchestrator.sessions.session_view import Views
from agent_orchestrator.sessions.workspace_access import at_its_work
from agent_orchestrator.views.saved_work import Found, safety
from agent_orchestrator.views.timeline import Story, entry_json, sentence

KEPT = 50
"""Stories that are kept to be continued."""
PAGE = 2000
"""Events that are read at a time."""


class Stories:
    """Tells them; reads, and changes nothing."""

    def __init__(self, flow: Flow, plugins: Plugins, views: Views) -> None:
        self.flow = flow
        self.plugins = plugins
        self.views = views
        self._stories: OrderedDict[str, Story] = OrderedDict()

    async def timeline(self, session: str, limit: int) -> dict[str, Any]:
        """What happened to a session, oldest first, and how it stands in one sentence."""
        facts = self.flow.sessions[session]
        rules = self.flow.rules(facts.project, facts.spec.profile)
        story = await self._story(session, {rule.name: rule.retries for rule in rules})
        facts = self.flow.sessions[session]
        said = sentence(facts, self.views.status(facts), story.entries, rules, _hour)
        return {"sentence": said, "entries": [entry_json(entry) for entry in story.entries[-limit:]]}

    async def _story(self, session: str, retries: dict[str, int | None]) -> Story:
        """Read on where it was left off."""
        story = self._stories.setdefault(session, Story())
        self._stories.move_to_end(session)
        while len(self._stories) > KEPT:
            self._stories.popitem(last=False)
        while page := await self.flow.store.events(story.seq, PAGE, session=session):
            for event in page:
                if event.seq > story.seq:  # somebody else who asks may have read it meanwhile
                    story.add(event, retries)
            if len(page) < PAGE:
                break
        return story

    async def work(self, session: str) -> dict[str, Any]:
        """Where a session's work is, and whether it is safe."""
        facts, found = await at_its_work(self.flow, self.plugins, session, self._found)
        place = facts.place
        return {
            "path": place.path if place and found.present else None,
            "branch": facts.branch,
            "base": facts.base,
            "head": facts.head,
            "pushed": facts.pushed,
            "ahead": found.ahead,
            "uncommitted": list(found.uncommitted),
            "rescues": list(facts.rescues),
            "ports": list(facts.spec.ports),
            "sentence": safety(facts, found),
        }

    async def _found(self, git: Git, facts: SessionFacts, present: bool) -> tuple[SessionFacts, Found]:
        place = facts.place
        if place is None:
            return facts, Found()
        try:
            changes = await git.status() if present else []
            tip = "HEAD" if present else facts.head or facts.branch
            ahead = await git.count(f"{place.base_commit}..{tip}") if place.base_commit else None
        except AoError:  # a workspace or a branch that somebody spoiled: what is known is told all the same
            return facts, Found(present=present)
        return facts, Found(present, tuple(sorted({change.path for change in changes})), ahead)


def _hour(time: float) -> str:
    """As the clock on the daemon's wall shows it."""
    return datetime.fromtimestamp(time).strftime("%H:%M")
