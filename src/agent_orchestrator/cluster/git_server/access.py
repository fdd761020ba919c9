"""What a session on another machine may do with its project's repository: its agent reads it, its node writes to refs of the session, too.

What waits under those refs is put into workspaces outside of any sandbox: an agent that could write them would say what is saved of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.base.git.refs import ref_safe, valid_branch
from agent_orchestrator.config.tokens import Identity
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.errors import Denied

SHOWN = ("refs/heads", "refs/tags", "refs/remotes")
"""What every session of the project may see."""
_OWN = ("clone", "checkpoint", "rescue", "restored", "stale")
_WRITABLE = ("clone", "checkpoint", "rescue")
_BY_ITSELF = "commit, and do not push: commits on the session's branch are brought over by themselves"


@dataclass(frozen=True, slots=True)
class Rights:
    """Of one session, as long as `still` says so."""

    session: str
    repo: Path
    still: Callable[[], None]
    """Raises `Denied` once its launch is not the session's last any more."""
    saves: bool
    """Its node asks, not its agent."""

    @property
    def visible(self) -> tuple[str, ...]:
        """Refs, each with all below it."""
        return (*SHOWN, *(f"refs/ao/{kind}/{ref_safe(self.session)}" for kind in _OWN))

    def why_not(self, ref: str) -> str:
        """Why it may not write a ref; nothing: it may."""
        own = ref_safe(self.session)
        if not self.saves:
            return _BY_ITSELF
        if ref in (f"refs/ao/{kind}/{own}" for kind in _WRITABLE):
            return ""
        if ref.startswith(f"refs/ao/stale/{own}/") and valid_branch(ref.removeprefix("refs/ao/stale/")):
            return ""
        if ref.startswith("refs/ao/"):
            return f"{self.session} may not write there"
        return _BY_ITSELF


def rights_of(
    identity: Identity, project: str, repo: Callable[[str], Path], session: Callable[[str], SessionFacts | None]
) -> Rights:
    """What whoever asks may do with this project's repository. Raises `Denied` if nothing."""
    if identity.session is None or identity.generation is None:
        raise Denied("repositories are served to sessions on other machines only", "use your own clone of it")
    name, generation = identity.session, identity.generation

    def still() -> None:
        facts = session(name)
        if facts is None or facts.project != project:
            raise Denied(f"{name} is no session of project {project}", "fetch from its own project's repository")
        if not facts.remote:  # what it saves is saved by the daemon, whose word it would be taken for
            raise Denied(f"{name} has its repository where it is", "use that")
        current = facts.generation + bool(facts.launch and facts.launch.lost)
        if generation < current:
            raise Denied(
                f"launch {generation} of {name} is over: it is at launch {current}",
                "use the token of the launch that runs",
            )

    still()
    return Rights(name, repo(project), still, saves=identity.kind == "saver")
