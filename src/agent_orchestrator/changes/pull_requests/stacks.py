"""Stacked branches: a session that starts on another session's branch follows it.

When the session below has merged, those stacked on it get the branch that it merged into as their base, and their own
commits are rebased onto it. When it was itself rebased, they follow. When it is given up, its commits become part of
theirs, and a person is notified.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.changes import merge
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Effect, RetryLater
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.status import IN_TURN_ACTIVITIES
from agent_orchestrator.errors import AoError
from agent_orchestrator.sessions.part import Part

RETRY_AFTER = 30.0
"""Seconds after which a workspace that cannot follow is tried again."""


class Stacks(Part):
    """Keeps stacked sessions on the right base."""

    source = "stack"

    def effects(self) -> dict[str, Effect]:
        """Return the effects by kind of intent."""
        return {"rebase": Effect(self.rebase)}

    def start(self) -> None:
        """Check what became of the sessions below while the daemon did not run, and watch them from now on."""
        self.on(self._check_changed)
        for facts in list(self.flow.sessions.values()):
            self._check_stacked(facts, _head_in_repository(facts))

    def _check_changed(self, changes: Sequence[FactsChange]) -> None:
        """Check the sessions stacked on one that changed."""
        for change in changes:
            before, after = change.before, change.after
            if after is not None and after is not before:
                previous_head = _head_in_repository(before) if before else None
                self._check_stacked(after, previous_head if previous_head != _head_in_repository(after) else None)

    def _check_stacked(self, below: SessionFacts, moved_from: str | None) -> None:
        """Record for the sessions stacked on another what became of it."""
        stacked = [facts for facts in self.flow.sessions.values() if facts.spec.stack == below.id and facts.stacked]
        if stacked:
            self.spawn(self._record_news(stacked, below, moved_from))

    async def _record_news(self, stacked: Sequence[SessionFacts], below: SessionFacts, moved_from: str | None) -> None:
        """Record the events for stacked sessions."""
        events = [event for facts in stacked for event in self._end_events(facts, below)]
        if not events and moved_from:
            events = [event for facts in stacked for event in await self._rewrite_events(facts, below, moved_from)]
        if events:
            await self.flow.append(*events)

    def _end_events(self, facts: SessionFacts, below: SessionFacts) -> list[Event]:
        """Return the events for a stacked session when the one below has merged or was given up."""
        if facts.pr and facts.pr.state != "open":
            return []
        key = f"stack:{facts.id}:{below.id}"
        if below.pr and below.pr.state == "merged":
            body = e.BaseChanged(below.pr.base, f"{below.id} has landed", _head_in_repository(below) or "")
            return [self.event(facts, body, f"{key}:landed")]
        if not _is_given_up(below):
            return []
        base_changed = e.BaseChanged(below.base, f"{below.id} was given up")
        text = f"it stands on {below.id}, which was given up: the commits of that are part of its change now"
        notice = e.Notified("stack-broken", f"{facts.id}: {below.id} was given up", text, "warning")
        notices = [self.event(facts, notice, f"{key}:told")] if below.has_commits else []
        return [self.event(facts, base_changed, f"{key}:given-up"), *notices]

    async def _rewrite_events(self, facts: SessionFacts, below: SessionFacts, moved_from: str) -> list[Event]:
        """Return the event for a stacked session whose starting commit is not part of the branch below any more."""
        git, head = Git(self.host, Path(facts.spec.repo)), _head_in_repository(below)
        try:
            if facts.workspace is None or head is None or await git.is_ancestor(facts.workspace.base_commit, head):
                return []
        except AoError:
            return []  # the repository is missing, or one of the commits is not in it
        body = e.BaseChanged(below.branch, f"{below.id} was rewritten", moved_from)
        return [self.event(facts, body, f"stack:{facts.id}:{below.id}:{head}")]

    # -- rebasing ------------------------------------------------------------------------------------------------------

    async def rebase(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Rebase a session's own commits onto its base, between two turns of its agent.

        If that conflicts, the agent is to do it. Raises `RetryLater` while the agent works or a checkout blocks the move.
        """
        facts = self.flow.sessions[intent.session]
        workspace, below = facts.workspace, facts.old_base_commit
        assert workspace is not None and below is not None
        if facts.live and facts.activity.state in {*IN_TURN_ACTIVITIES, "blocked"}:
            raise RetryLater(RETRY_AFTER)
        onto = await Git(self.host, Path(facts.spec.repo)).resolve(f"refs/heads/{facts.base}")
        if onto is None:
            return []
        if facts.remote:
            refusal = e.RebaseRefused(
                facts.head or "", f"its workspace is on node {facts.node or 'none'}: its agent does it"
            )
            return [self._outcome_event(facts, intent, refusal)]
        spec = merge.RebaseSpec(
            repo=Path(facts.spec.repo) if workspace.shared else Path(workspace.path),
            branch=facts.branch,
            head=facts.head or "",
            foreign_commits=(workspace.base_commit, below),
            base=facts.base,
            onto=onto,
            work=self.home.path / "landing" / facts.id,
            preserves_commits=bool(facts.pr and facts.pr.is_reviewed_by_person),
        )
        outcome = await merge.rebase(self.host, spec)
        match outcome:
            case merge.Rebased():
                moved = [e.HeadMoved(outcome.head)] if outcome.head != facts.head else []
                return [self._outcome_event(facts, intent, body) for body in (*moved, e.BranchRebased(outcome.onto))]
            case merge.Conflicted():
                refusal = e.RebaseRefused(spec.head, f"conflicts in {', '.join(outcome.files[:5])}")
                return [self._outcome_event(facts, intent, refusal)]
            case merge.Blocked():
                raise RetryLater(
                    RETRY_AFTER, self._outcome_event(facts, intent, e.RebaseRefused(spec.head, outcome.reason))
                )
        return []

    def _outcome_event(self, facts: SessionFacts, intent: Intent, body: e.Body) -> Event:
        """Return an event with the key of the intent and the event's type."""
        return self.event(facts, body, f"{intent.key}:{body.type}")


def _is_given_up(below: SessionFacts) -> bool:
    """Return whether nothing of a session will merge: its pull request was closed, or it stopped without one."""
    return below.pr.state == "closed" if below.pr else below.stopped


def _head_in_repository(facts: SessionFacts) -> str | None:
    """Return a session's newest commit in the main repository, or None."""
    return facts.head if facts.workspace is None or facts.workspace.shared else facts.published_head
