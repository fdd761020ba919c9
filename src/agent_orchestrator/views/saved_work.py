"""Describes in one sentence where a session's work is saved. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from agent_orchestrator.core.facts import SessionFacts


@dataclass(frozen=True, slots=True)
class WorkState:
    """What was read from the workspace or the branch."""

    has_workspace: bool = False
    """Whether the workspace exists."""
    uncommitted: tuple[str, ...] = ()
    ahead: int | None = None
    """The number of the session's own commits; None if they could not be read."""


def saved_work_sentence(facts: SessionFacts, work_state: WorkState) -> str:
    """Return where the work is saved; says clearly if it is only in the workspace."""
    workspace, pr = facts.workspace, facts.pr
    uncommitted = _uncommitted_text(work_state)
    if pr and pr.state == "merged":
        merged_text = f"landed on {pr.base}" + (f" as {pr.merge_commit[:7]}" if pr.merge_commit else "")
        return _saved_sentence(merged_text, uncommitted, _rescue_text(facts, work_state))
    if workspace is None:
        return "no work yet: its workspace is not made"
    if work_state.ahead is None and facts.head is None:
        return "not known: neither its workspace nor its branch could be looked at"
    if not (facts.has_commits or work_state.ahead):
        if uncommitted:
            return f"only in the workspace: {uncommitted}, nothing committed yet"
        rescued = _rescue_text(facts, work_state)
        return f"work safe: {rescued}" if rescued else "no work yet: nothing committed, nothing changed"
    head = facts.head or ""
    if facts.pushed_head == head:
        return _saved_sentence(f"pushed {head[:7]}", uncommitted, _rescue_text(facts, work_state))
    is_in_repository = workspace.shared or facts.published_head == head or not work_state.has_workspace
    if not is_in_repository:
        count = f"{work_state.ahead} commit{'s' if work_state.ahead != 1 else ''}" if work_state.ahead else "commits"
        return ", ".join(part for part in (f"only in the workspace: {count} up to {head[:7]}", uncommitted) if part)
    pushed_note = f", {facts.pushed_head[:7]} pushed" if facts.pushed_head else ""
    return _saved_sentence(
        f"committed {head[:7]} on {facts.branch} in your repository{pushed_note}",
        uncommitted,
        _rescue_text(facts, work_state),
    )


def _uncommitted_text(work: WorkState) -> str:
    count = len(work.uncommitted)
    return f"{count} file{'s' if count != 1 else ''} uncommitted" if count else ""


def _rescue_text(facts: SessionFacts, work: WorkState) -> str:
    """Return where the rest is saved if the workspace was removed, or ""."""
    return f"the rest saved as {facts.rescues[-1]}" if facts.rescues and not work.has_workspace else ""


def _saved_sentence(*parts: str) -> str:
    return f"work safe: {', '.join(part for part in parts if part)}"
