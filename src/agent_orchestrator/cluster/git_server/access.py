"""Access rights of a session on another machine to its project's repository: its agent reads; its node also writes the session's refs.

What is saved under those refs is restored into workspaces outside of any sandbox, so an agent must not be able to write them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.base.api_tokens import Identity
from agent_orchestrator.base.git.refs import escape_for_ref, is_valid_branch
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.errors import Denied

READABLE_BY_ALL = ("refs/heads", "refs/tags", "refs/remotes")
"""Refs that every session of the project may read."""
_READABLE_REF_KINDS = ("clone", "checkpoint", "rescue", "restored", "stale")
"""Kinds of refs below `refs/ao/` that a session may read if they are its own."""
_WRITABLE_REF_KINDS = ("clone", "checkpoint", "rescue")
"""Kinds of refs of Agent Orchestrator that a session's node may write."""
_NO_PUSH_REMEDY = "commit, and do not push: commits on the session's branch are brought over by themselves"


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of one session, valid as long as `still` does not raise."""

    session: str
    repo: Path
    check_still_valid: Callable[[], None]
    """Raises `Denied` once its launch is not the session's last any more."""
    is_node: bool
    """The request is from its node, not from its agent."""

    @property
    def visible(self) -> tuple[str, ...]:
        """The refs that it may read, each with all refs below it."""
        return (*READABLE_BY_ALL, *(f"refs/ao/{kind}/{escape_for_ref(self.session)}" for kind in _READABLE_REF_KINDS))

    def refusal_reason(self, ref: str) -> str:
        """Return why it may not write a ref, or "" if it may."""
        ref_name = escape_for_ref(self.session)
        if not self.is_node:
            return _NO_PUSH_REMEDY
        if ref in (f"refs/ao/{kind}/{ref_name}" for kind in _WRITABLE_REF_KINDS):
            return ""
        if ref.startswith(f"refs/ao/stale/{ref_name}/") and is_valid_branch(ref.removeprefix("refs/ao/stale/")):
            return ""
        if ref.startswith("refs/ao/"):
            return f"{self.session} may not write there"
        return _NO_PUSH_REMEDY


def rights_of(
    identity: Identity, project: str, repo: Callable[[str], Path], session: Callable[[str], SessionFacts | None]
) -> Rights:
    """Return the rights of the caller to this project's repository. Raises `Denied` if it has none."""
    if identity.session is None or identity.generation is None:
        raise Denied("repositories are served to sessions on other machines only", "use your own clone of it")
    name, generation = identity.session, identity.generation

    def still() -> None:
        """Raise `Denied` unless the caller's launch is still the session's last."""
        facts = session(name)
        if facts is None or facts.project != project:
            raise Denied(f"{name} is no session of project {project}", "fetch from its own project's repository")
        if not facts.remote:  # only the daemon writes its refs here: a push would pass for the daemon's own work
            raise Denied(f"{name} has its repository where it is", "use that")
        current = facts.generation + bool(facts.launch and facts.launch.loss_reason)
        if generation < current:
            raise Denied(
                f"launch {generation} of {name} is over: it is at launch {current}",
                "use the token of the launch that runs",
            )

    still()
    return Rights(name, repo(project), still, is_node=identity.kind == "saver")
