"""From events to facts: a session's workspace, branch and base branch, and where its work is saved.

Part of the fold in `core/fold/sessions.py`. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import (
    SessionFacts,
    Workspace,
)
from agent_orchestrator.core.fold.step import Step


def _apply_workspace_created(facts: SessionFacts, _event: Event, body: e.WorkspaceCreated) -> SessionFacts:
    """Record the session's workspace; one that is created again without a base commit keeps the earlier one."""
    notes = facts.notes + tuple(note for note in body.notes if note not in facts.notes)
    workspace = Workspace(
        body.path, body.base_commit, body.git_dir, body.git_env, shared=body.shared, copied=body.copied
    )
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


def _apply_work_rescued(facts: SessionFacts, _event: Event, body: e.WorkRescued) -> SessionFacts:
    """Add the ref of rescued work as the newest one."""
    return replace(facts, rescues=(*(ref for ref in facts.rescues if ref != body.ref), body.ref))


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


def _apply_work_pushed(facts: SessionFacts, _event: Event, body: e.WorkPushed) -> SessionFacts:
    """Record the head that was pushed to the forge."""
    return replace(facts, pushed=body.head)


STEPS: Mapping[type[e.Body], Step] = {
    e.WorkspaceCreated: _apply_workspace_created,
    e.WorkRescued: _apply_work_rescued,
    e.HeadMoved: _apply_head_moved,
    e.BaseChanged: _apply_base_changed,
    e.BranchRebased: _apply_branch_rebased,
    e.RebaseRefused: _apply_rebase_refused,
    e.WorkPublished: _apply_work_published,
    e.WorkPushed: _apply_work_pushed,
}
