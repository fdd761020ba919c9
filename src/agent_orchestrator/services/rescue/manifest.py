"""What a rescue holds, as it is stored: everything but the bytes, which are blobs named here."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from agent_orchestrator.errors import AoError
from agent_orchestrator.git_files import ref_safe

FORMAT = 1
IDENTITY = {
    "GIT_AUTHOR_NAME": "Agent Orchestrator",
    "GIT_AUTHOR_EMAIL": "ao@localhost",
    "GIT_COMMITTER_NAME": "Agent Orchestrator",
    "GIT_COMMITTER_EMAIL": "ao@localhost",
}


def rescue_ref(session: str) -> str:
    """Where a session's saved work waits."""
    return f"refs/ao/rescue/{ref_safe(session)}"


def restored_ref(session: str) -> str:
    """Where saved work stays reachable after it was brought back."""
    return f"refs/ao/restored/{ref_safe(session)}"


def checkpoint_ref(session: str) -> str:
    """Where a working session's state is saved from time to time."""
    return f"refs/ao/checkpoint/{ref_safe(session)}"


@dataclass(slots=True)
class Entry:
    """One file, symlink (its blob is the target) or nested repository (a tar) of the workspace."""

    path: str
    kind: str
    mode: int
    blob: str = ""


@dataclass(slots=True)
class Manifest:
    """A workspace's unsaved part. Holds no time, so that the same content gives the same bytes."""

    head_ref: str | None
    """The branch that HEAD named (`refs/heads/…`); none: detached."""
    head: str | None
    """The commit it stood at; none: a branch without commits."""
    entries: list[Entry] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    """Paths that HEAD has and the workspace had not."""
    empty: list[str] = field(default_factory=list)
    """Folders with nothing in them."""
    git_files: dict[str, str] = field(default_factory=dict)
    """Name in the workspace's Git folder → blob: index, rebase and merge state, HEAD's log."""
    refs: dict[str, str] = field(default_factory=dict)
    """Refs that only this workspace has."""
    tags: dict[str, str] = field(default_factory=dict)
    """Tag object → blob with its content."""
    stashes: list[tuple[str, str]] = field(default_factory=list)
    """(commit, message), newest first."""
    filled: list[str] = field(default_factory=list)
    """Submodules that were checked out; what is in them is pushed, so they are filled anew."""
    format: int = FORMAT

    def dump(self) -> bytes:
        """As bytes; names that are not UTF-8 survive."""
        return json.dumps(asdict(self), indent=1, sort_keys=True).encode()

    @classmethod
    def load(cls, content: bytes) -> Manifest:
        """From bytes."""
        found = json.loads(content)
        if found.get("format") != FORMAT:
            raise AoError(
                f"this rescue has format {found.get('format')}, known here is {FORMAT}", "use a newer version"
            )
        found["entries"] = [Entry(**entry) for entry in found["entries"]]
        found["stashes"] = [(sha, message) for sha, message in found["stashes"]]
        return cls(**found)
