"""Stacked branches: a session that starts on another one's branch follows it.

When the one below has landed, those that stand on it are for the branch that it landed on, and their own commits are put there. When
it was itself rebased, they follow. When it is given up, its commits are part of theirs, and a person is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.home import Home
from agent_orchestrator.changes import merge
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Again, Effect
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.status import IN_TURN
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols.host import Host

LOOK_AGAIN = 30.0
"""Seconds after which a workspace that cannot follow is looked at again."""


class Stacks:
    """Keeps sessions that stand on others where they belong."""

    def __init__(self, flow: Flow, home: Home, host: Host) -> None:
        self.flow = flow
        self.home = home
        self.host = host
        self._tasks: set[asyncio.Task[None]] = set()

    def effects(self) -> dict[str, Effect]:
        """By kind of intent."""
        return {"rebase": Effect(self.rebase)}

    def start(self) -> None:
        """Look at what became of those below while nobody looked, and at what becomes of them."""
        self.flow.on_change.append(self._on_change)
        for facts in list(self.flow.sessions.values()):
            self._look(facts, _there(facts))

    def _on_change(self, changes: Sequence[Change]) -> None:
        for change in changes:
            before, after = change.before, change.after
            if after is not None and after is not before:
                was = _there(before) if before else None
                self._look(after, was if was != _there(after) else None)

    def _look(self, below: SessionFacts, moved_from: str | None) -> None:
        """Tell those that stand on a session what became of it."""
        on_it = [facts for facts in self.flow.sessions.values() if facts.spec.stack == below.id and facts.stacked]
        if on_it:
            task = asyncio.get_running_loop().create_task(self._tell(on_it, below, moved_from))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _tell(self, on_it: Sequence[SessionFacts], below: SessionFacts, moved_from: str | None) -> None:
        events = [event for facts in on_it for event in self._news(facts, below)]
        if not events and moved_from:
            events = [event for facts in on_it for event in await self._rewritten(facts, below, moved_from)]
        if events:
            await self.flow.append(*events)

    def _news(self, facts: SessionFacts, below: SessionFacts) -> list[Event]:
        """The one below has come to its end."""
        if facts.pr and facts.pr.state != "open":
            return []
        key = f"stack:{facts.id}:{below.id}"
        if below.pr and below.pr.state == "merged":
            body = e.BaseChanged(below.pr.base, f"{below.id} has landed", _there(below) or "")
            return [self._event(facts, body, f"{key}:landed")]
        if not _given_up(below):
            return []
        gone = e.BaseChanged(below.base, f"{below.id} was given up")
        why = f"it stands on {below.id}, which was given up: the commits of that are part of its change now"
        notice = e.Notified("stack-broken", f"{facts.id}: {below.id} was given up", why, "warning")
        told = [self._event(facts, notice, f"{key}:told")] if below.committed else []
        return [self._event(facts, gone, f"{key}:given-up"), *told]

    async def _rewritten(self, facts: SessionFacts, below: SessionFacts, moved_from: str) -> list[Event]:
        """The commit that it began on is not part of the branch below any more."""
        git, head = Git(self.host, Path(facts.spec.repo)), _there(below)
        try:
            if facts.place is None or head is None or await git.is_ancestor(facts.place.base_commit, head):
                return []
        except AoError:
            return []  # the repository is not there, or one of them is not in it
        body = e.BaseChanged(below.branch, f"{below.id} was rewritten", moved_from)
        return [self._event(facts, body, f"stack:{facts.id}:{below.id}:{head}")]

    def _event(self, facts: SessionFacts, body: e.Body, key: str) -> Event:
        return Event(body, self.flow.clock(), "stack", key, facts.project, facts.id)

    # -- carried out ---------------------------------------------------------------------------------------------------

    async def rebase(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Put a session's own commits onto its base, between two turns of its agent; one that conflicts is its agent's matter."""
        facts = self.flow.sessions[intent.session]
        place, below = facts.place, facts.below
        assert place is not None and below is not None
        if facts.live and facts.activity.state in {*IN_TURN, "blocked"}:
            raise Again(LOOK_AGAIN)
        onto = await Git(self.host, Path(facts.spec.repo)).resolve(f"refs/heads/{facts.base}")
        if onto is None:
            return []
        if facts.remote:
            refused = e.RebaseRefused(
                facts.head or "", f"its workspace is on node {facts.node or 'none'}: its agent does it"
            )
            return [self._done(facts, intent, refused)]
        spec = merge.RebaseSpec(
            repo=Path(facts.spec.repo) if place.shared else Path(place.path),
            branch=facts.branch,
            head=facts.head or "",
            below=(place.base_commit, below),
            base=facts.base,
            onto=onto,
            work=self.home.path / "landing" / facts.id,
            merge=bool(facts.pr and facts.pr.seen_by_person),
        )
        outcome = await merge.rebase(self.host, spec)
        match outcome:
            case merge.Rebased():
                moved = [e.HeadMoved(outcome.head)] if outcome.head != facts.head else []
                return [self._done(facts, intent, body) for body in (*moved, e.BranchRebased(outcome.onto))]
            case merge.Conflicted():
                refused = e.RebaseRefused(spec.head, f"conflicts in {', '.join(outcome.files[:5])}")
                return [self._done(facts, intent, refused)]
            case merge.Waits():
                raise Again(LOOK_AGAIN, self._done(facts, intent, e.RebaseRefused(spec.head, outcome.reason)))
        return []

    def _done(self, facts: SessionFacts, intent: Intent, body: e.Body) -> Event:
        return self._event(facts, body, f"{intent.key}:{body.type}")


def _given_up(below: SessionFacts) -> bool:
    """Nothing of it will land: its change was closed, or it ended without one."""
    return below.pr.state == "closed" if below.pr else below.stopped


def _there(facts: SessionFacts) -> str | None:
    """Its newest commit in the main repository."""
    return facts.head if facts.place is None or facts.place.shared else facts.published
