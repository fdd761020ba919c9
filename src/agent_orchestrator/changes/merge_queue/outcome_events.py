"""Turn the outcome of a merge into events."""

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
from agent_orchestrator.changes.merge.commit_message import merge_body, merge_title
from agent_orchestrator.changes.merge_queue.base_queue import QueueOutcome, RejectedChange
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.issues import issue_of
from agent_orchestrator.core.fold.pull_requests import check_run
from agent_orchestrator.core.pull_request import NOT_SET_UP
from agent_orchestrator.errors import AoError
from agent_orchestrator.sessions.part import Core

MAX_UNCOMMITTED = 100
"""Maximum number of uncommitted files that a merge event names."""


def merge_spec(home: Home, facts: SessionFacts) -> merge.MergeSpec:
    """Return what is to merge and how, for a session with a pull request; creates its scratch folder."""
    assert facts.pr is not None
    work = home.path / "landing" / facts.id
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    strategy = facts.pr.merge_request.strategy if facts.pr.merge_request else "squash"
    return merge.MergeSpec(
        session=facts.id,
        repo=Path(facts.spec.repo),
        branch=facts.branch,
        head=(facts.pr.merge_request.head if facts.pr.merge_request else None) or facts.head or "",
        base=facts.pr.base,
        strategy=cast("merge.Strategy", strategy),
        title=merge_title(facts.pr.title, facts.pr.number),
        body=merge_body(facts.done_summary or "", facts.spec.issue),
        work=work,
    )


class MergeEvents:
    """Makes the events of a merge's outcome; `key` is the key of the intent to merge."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def event(self, facts: SessionFacts, body: e.Body, key: str, source: str = "forge") -> Event:
        """Return an event about a session's merge."""
        return Event(body, self._core.flow.clock(), source, key, facts.project, facts.id)

    async def outcome_events(self, facts: SessionFacts, key: str, outcome: QueueOutcome) -> list[Event]:
        """Return the events for the outcome of a change in the merge queue."""
        match outcome:
            case merge.CompletedMerge():
                return await self._merged_events(facts, key, outcome)
            case merge.Conflicted():
                return self._conflict_events(facts, key, outcome)
            case merge.MovedBranch():
                return self._moved_events(facts, key, outcome.head)
            case RejectedChange():
                return self._refusal_events(facts, key, outcome)
        return []

    def failure_events(self, facts: SessionFacts, key: str, error: AoError) -> list[Event]:
        """Return the events for a merge that could not even be tried."""
        return [self.event(facts, e.LandingFailed(str(error), "error"), f"{key}:failed")]

    def wait_events(self, facts: SessionFacts, reason: str) -> list[Event]:
        """Return the event that the change cannot merge yet; no event if that reason is already recorded."""
        last_reason = facts.pr.merge_request.wait_reason if facts.pr and facts.pr.merge_request else reason
        key = f"landing-waits:{facts.id}:{self._core.flow.clock():.6f}"
        return [self.event(facts, e.LandingWaits(reason), key)] if last_reason != reason else []

    def _refusal_events(self, facts: SessionFacts, key: str, refused: RejectedChange) -> list[Event]:
        """Return the events for a change that fails a check.

        The agent gets the failed check as it gets any other, with what the change was built on.
        """
        failed = refused.failed
        finished, run = failed.event, check_run(failed.event)
        where = f"on top of {facts.pr.base if facts.pr else facts.base}"
        where += f" with {', '.join(refused.ahead)}" if refused.ahead else ""
        reason = finished.summary.partition("\n")[0] or finished.state
        effect = "fails" if run.fails or run.is_known else "holds the merge"
        events = [
            self.event(
                facts,
                e.LandingFailed(f"the check {failed.check} {effect} {where}: {reason}", "checks"),
                f"{key}:failed",
            )
        ]
        if failed.assessment.result.is_reproducible or finished.state in ("timed_out", NOT_SET_UP):
            body = replace(finished, summary=f"{where}: {finished.summary}")
            events.append(self.event(facts, body, f"{key}:{failed.check}:finished", "checks"))
        return events

    def _conflict_events(self, facts: SessionFacts, key: str, built: merge.Conflicted) -> list[Event]:
        """Return the events for a change that conflicts with the base."""
        files = ", ".join(built.files[:5])
        conflicts = e.ConflictsSeen(facts.head or "", built.base_before, built.files)
        failed = e.LandingFailed(f"it conflicts with {facts.base} in {files}", "conflict")
        return [
            self.event(facts, failed, f"{key}:failed"),
            self.event(facts, e.BaseMoved(built.base_before), f"{key}:base", "git"),
            self.event(facts, conflicts, f"{key}:conflicts", "git"),
        ]

    def _moved_events(self, facts: SessionFacts, key: str, head: str | None) -> list[Event]:
        """Return the events for a branch that is not at the checked commit: nothing merges, and its present head counts."""
        reason = "its branch moved meanwhile; what is there now was not checked" if head else "its branch is gone"
        git_dir = (
            Path(facts.workspace.git_dir) if facts.workspace and facts.workspace.present and not facts.remote else None
        )
        current_branch = ((git_dir and read_symbolic_head(git_dir)) or "").removeprefix("refs/heads/")
        if current_branch and current_branch != facts.branch:
            own_quoted, current_quoted = quote(facts.branch), quote(current_branch)
            remedy = (
                f"git checkout {own_quoted} && git merge {current_quoted}" if head else f"git branch -m {own_quoted}"
            )
            reason = f"its workspace is on branch {current_branch}, not on {facts.branch}: have that changed there, by {remedy}"
        events = [self.event(facts, e.LandingFailed(reason, "moved"), f"{key}:failed")]
        if head and facts.workspace and facts.workspace.shared and head != facts.head:
            events.insert(0, self.event(facts, e.HeadMoved(head), f"{key}:head", "git"))
        return events

    async def _merged_events(self, facts: SessionFacts, key: str, landed: merge.CompletedMerge) -> list[Event]:
        """Return the events for a merged change; a local issue that it was for is closed."""
        request = facts.pr.merge_request if facts.pr else None
        body = e.PrMerged(
            landed.commit,
            landed.base_before,
            request.head if request else facts.head or "",
            request.strategy if request else "squash",
            keep_branch=bool(request and not request.delete_after),
            left=await self._uncommitted_files(facts),
        )
        events = [self.event(facts, body, f"{key}:done")]
        issue = issue_of(self._core.flow.home.issues, facts.project, facts.spec.issue)
        if issue and issue.state == "open" and not issue.hosted:
            closed = e.IssueChanged(issue.number, state="closed")
            events.append(Event(closed, self._core.flow.clock(), "forge", f"{key}:issue", facts.project))
        return events

    async def _uncommitted_files(self, facts: SessionFacts) -> tuple[str, ...]:
        """Return the names of the workspace's uncommitted files, which do not merge; at most MOST_LEFT."""
        workspace = facts.workspace
        if workspace is None or not workspace.present:
            return ()
        try:
            site = self._core.sites.for_session(facts)
            if not await site.folder_exists(Path(workspace.path)):
                return ()
            changes = await Git(site.host, Path(workspace.path)).status()
        except AoError:
            return ()  # unknown; the files are saved before the workspace is removed
        names = {os.fsencode(change.path).decode(errors="replace") for change in changes}
        return tuple(sorted(names)[:MAX_UNCOMMITTED])
