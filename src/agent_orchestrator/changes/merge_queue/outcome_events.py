"""What came of a landing, as events."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import cast

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.refs import read_symbolic_head
from agent_orchestrator.base.home import Home
from agent_orchestrator.changes import merge
from agent_orchestrator.changes.merge_queue.lane import Outcome, Refused
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.pull_requests import check_run, issue_of
from agent_orchestrator.core.pull_request import NOT_SET_UP
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols.text import without_orders
from agent_orchestrator.sessions.plugins import Plugins

MOST_LEFT = 100
"""Uncommitted files that a landing names."""


def landing_spec(home: Home, facts: SessionFacts) -> merge.LandingSpec:
    """What is to land, and how."""
    assert facts.pr is not None
    work = home.path / "landing" / facts.id
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    strategy = facts.pr.landing.strategy if facts.pr.landing else "squash"
    closes = f"Closes #{facts.spec.issue}\n\n" if facts.spec.issue else ""
    return merge.LandingSpec(
        session=facts.id,
        repo=Path(facts.spec.repo),
        branch=facts.branch,
        head=(facts.pr.landing.head if facts.pr.landing else None) or facts.head or "",
        base=facts.pr.base,
        strategy=cast("merge.Strategy", strategy),
        title=f"{without_orders(facts.pr.title)} (#{facts.pr.number})",
        body=f"{closes}{without_orders(facts.done or '')}".strip(),
        work=work,
    )


class Telling:
    """Makes the events; `key` is that of the intent to land."""

    def __init__(self, flow: Flow, plugins: Plugins) -> None:
        self._flow = flow
        self._plugins = plugins

    def event(self, facts: SessionFacts, body: e.Body, key: str, source: str = "forge") -> Event:
        """Something about a session's landing."""
        return Event(body, self._flow.clock(), source, key, facts.project, facts.id)

    async def outcome(self, facts: SessionFacts, key: str, outcome: Outcome) -> list[Event]:
        """What became of a change that was to land."""
        match outcome:
            case merge.Landed():
                return await self._landed(facts, key, outcome)
            case merge.Conflicted():
                return self._conflicted(facts, key, outcome)
            case merge.BranchMoved():
                return self._moved(facts, key, outcome.now)
            case Refused():
                return self._refused(facts, key, outcome)
        return []

    def failed(self, facts: SessionFacts, key: str, error: AoError) -> list[Event]:
        """It could not even be tried."""
        return [self.event(facts, e.LandingFailed(str(error), "error"), f"{key}:failed")]

    def waits(self, facts: SessionFacts, reason: str) -> list[Event]:
        """It cannot land just now; nothing, if that is known."""
        known = facts.pr.landing.waits if facts.pr and facts.pr.landing else reason
        key = f"landing-waits:{facts.id}:{self._flow.clock():.6f}"
        return [self.event(facts, e.LandingWaits(reason), key)] if known != reason else []

    def _refused(self, facts: SessionFacts, key: str, refused: Refused) -> list[Event]:
        """Record why; its agent hears of the check as of any that fails, with what the change was on top of."""
        failed = refused.failed
        finished, run = failed.finished, check_run(failed.finished)
        where = f"on top of {facts.pr.base if facts.pr else facts.base}"
        where += f" with {', '.join(refused.ahead)}" if refused.ahead else ""
        why = finished.summary.partition("\n")[0] or finished.state
        what = "fails" if run.fails or run.is_known else "holds the merge"
        events = [
            self.event(
                facts, e.LandingFailed(f"the check {failed.check} {what} {where}: {why}", "checks"), f"{key}:failed"
            )
        ]
        if failed.found.result.about_content or finished.state in ("timed_out", NOT_SET_UP):
            body = replace(finished, summary=f"{where}: {finished.summary}")
            events.append(self.event(facts, body, f"{key}:{failed.check}:finished", "checks"))
        return events

    def _conflicted(self, facts: SessionFacts, key: str, built: merge.Conflicted) -> list[Event]:
        files = ", ".join(built.files[:5])
        seen = e.ConflictsSeen(facts.head or "", built.base_before, built.files)
        failed = e.LandingFailed(f"it conflicts with {facts.base} in {files}", "conflict")
        return [
            self.event(facts, failed, f"{key}:failed"),
            self.event(facts, e.BaseMoved(built.base_before), f"{key}:base", "git"),
            self.event(facts, seen, f"{key}:conflicts", "git"),
        ]

    def _moved(self, facts: SessionFacts, key: str, now: str | None) -> list[Event]:
        """The branch is not where it was when it was checked: nothing lands, and where it is now is what counts."""
        reason = "its branch moved meanwhile; what is there now was not checked" if now else "its branch is gone"
        here = Path(facts.place.git_dir) if facts.place and facts.place.present and not facts.remote else None
        other = ((here and read_symbolic_head(here)) or "").removeprefix("refs/heads/")
        if other and other != facts.branch:
            own, there = quote(facts.branch), quote(other)
            back = f"git checkout {own} && git merge {there}" if now else f"git branch -m {own}"
            reason = f"its workspace is on branch {other}, not on {facts.branch}: have that changed there, by {back}"
        events = [self.event(facts, e.LandingFailed(reason, "moved"), f"{key}:failed")]
        if now and facts.place and facts.place.shared and now != facts.head:
            events.insert(0, self.event(facts, e.HeadMoved(now), f"{key}:head", "git"))
        return events

    async def _landed(self, facts: SessionFacts, key: str, landed: merge.Landed) -> list[Event]:
        asked = facts.pr.landing if facts.pr else None
        body = e.PrMerged(
            landed.commit,
            landed.base_before,
            asked.head if asked else facts.head or "",
            asked.strategy if asked else "squash",
            keep_branch=bool(asked and not asked.delete_after),
            left=await self._left(facts),
        )
        events = [self.event(facts, body, f"{key}:done")]
        issue = issue_of(self._flow.home.issues, facts.project, facts.spec.issue)
        if issue and issue.state == "open" and issue.tracker == "local":
            closed = e.IssueChanged(issue.number, state="closed")
            events.append(Event(closed, self._flow.clock(), "forge", f"{key}:issue", facts.project))
        return events

    async def _left(self, facts: SessionFacts) -> tuple[str, ...]:
        """What is in its workspace, not committed, and so does not land."""
        place = facts.place
        if place is None or not place.present:
            return ()
        try:
            site = self._plugins.site_of(facts)
            if not await site.present(Path(place.path)):
                return ()
            changes = await Git(site.host, Path(place.path)).status()
        except AoError:
            return ()  # nobody knows; what is there is saved before the workspace goes
        names = {os.fsencode(change.path).decode(errors="replace") for change in changes}
        return tuple(sorted(names)[:MOST_LEFT])
