"""Is a session's work safe? In one sentence. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from agent_orchestrator.core.facts import SessionFacts


@dataclass(frozen=True, slots=True)
class Found:
    """What a look at the workspace or the branch gave."""

    present: bool = False
    """The workspace is there."""
    uncommitted: tuple[str, ...] = ()
    ahead: int | None = None
    """Commits of its own; none: that could not be seen."""


def safety(facts: SessionFacts, found: Found) -> str:
    """Where the work is; says so plainly where it is in the workspace alone."""
    place, pr = facts.place, facts.pr
    loose = _loose(found)
    if pr and pr.state == "merged":
        landed = f"landed on {pr.base}" + (f" as {pr.landed[:7]}" if pr.landed else "")
        return _safe(landed, loose, _saved(facts, found))
    if place is None:
        return "no work yet: its workspace is not made"
    if found.ahead is None and facts.head is None:
        return "not known: neither its workspace nor its branch could be looked at"
    if not (facts.committed or found.ahead):
        if loose:
            return f"only in the workspace: {loose}, nothing committed yet"
        saved = _saved(facts, found)
        return f"work safe: {saved}" if saved else "no work yet: nothing committed, nothing changed"
    head = facts.head or ""
    if facts.pushed == head:
        return _safe(f"pushed {head[:7]}", loose, _saved(facts, found))
    kept = place.shared or facts.published == head or not found.present
    if not kept:
        count = f"{found.ahead} commit{'s' if found.ahead != 1 else ''}" if found.ahead else "commits"
        return ", ".join(part for part in (f"only in the workspace: {count} up to {head[:7]}", loose) if part)
    older = f", {facts.pushed[:7]} pushed" if facts.pushed else ""
    return _safe(f"committed {head[:7]} on {facts.branch} in your repository{older}", loose, _saved(facts, found))


def _loose(found: Found) -> str:
    count = len(found.uncommitted)
    return f"{count} file{'s' if count != 1 else ''} uncommitted" if count else ""


def _saved(facts: SessionFacts, found: Found) -> str:
    """Where the rest is, once the workspace is gone."""
    return f"the rest saved as {facts.rescues[-1]}" if facts.rescues and not found.present else ""


def _safe(*parts: str) -> str:
    return f"work safe: {', '.join(part for part in parts if part)}"
