"""The stored description of a rescue: everything but the bytes, which are blobs named here.

What is read is validated: a session on another machine sends its rescues with a token that its agent has too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from agent_orchestrator.base.files.safe import UnsafePath, parts_of
from agent_orchestrator.base.git.refs import escape_for_ref
from agent_orchestrator.base.git.settings import SPARSE_MARK
from agent_orchestrator.errors import AoError

FORMAT = 1
IDENTITY = {
    "GIT_AUTHOR_NAME": "Agent Orchestrator",
    "GIT_AUTHOR_EMAIL": "ao@localhost",
    "GIT_COMMITTER_NAME": "Agent Orchestrator",
    "GIT_COMMITTER_EMAIL": "ao@localhost",
}
"""Author and committer of the rescue's commits."""

_KINDS = ("file", "link", "nested")
_OBJECT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF = re.compile(r"refs/[^\x00-\x20\x7f]+")
_STATE = re.compile(
    r"[A-Z_]+|index|sharedindex\.[0-9a-f]+|(?:rebase-merge|rebase-apply|sequencer)/.+|logs/HEAD"
    rf"|info/(?:sparse-checkout|exclude|attributes)|config(?:\.worktree)?|{re.escape(SPARSE_MARK)}",
    re.DOTALL,
)
"""Files of a checkout's Git folder that are saved (`survey.py` lists them)."""


def rescue_ref(session: str) -> str:
    """Return the ref under which a session's saved work is stored until it is restored."""
    return f"refs/ao/rescue/{escape_for_ref(session)}"


def restored_ref(session: str) -> str:
    """Return the ref under which saved work stays reachable after it was restored."""
    return f"refs/ao/restored/{escape_for_ref(session)}"


def checkpoint_ref(session: str) -> str:
    """Return the ref under which a working session's state is saved from time to time."""
    return f"refs/ao/checkpoint/{escape_for_ref(session)}"


@dataclass(slots=True)
class SavedEntry:
    """One file, symlink (its blob is the target) or nested repository (a tar) of the workspace."""

    path: str
    kind: str
    mode: int
    blob: str = ""


@dataclass(slots=True)
class Manifest:
    """The unsaved part of a workspace. It has no times, so that the same content gives the same bytes."""

    head_ref: str | None
    """The branch that HEAD named (`refs/heads/…`), or None if it was detached."""
    head: str | None
    """The commit of HEAD, or None for a branch without commits."""
    entries: list[SavedEntry] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    """Paths that HEAD has and the workspace did not have."""
    empty: list[str] = field(default_factory=list)
    """Empty folders."""
    git_files: dict[str, str] = field(default_factory=dict)
    """Name in the workspace's Git folder → blob: index, rebase and merge state, HEAD's log."""
    refs: dict[str, str] = field(default_factory=dict)
    """Refs that only this workspace has."""
    tags: dict[str, str] = field(default_factory=dict)
    """Tag object → blob with its content."""
    stashes: list[tuple[str, str]] = field(default_factory=list)
    """(commit, message), newest first."""
    filled: list[str] = field(default_factory=list)
    """Submodules that were checked out; their content is pushed, so they are checked out again."""
    format: int = FORMAT

    def dump(self) -> bytes:
        """Return the manifest as bytes; names that are not UTF-8 are preserved."""
        return json.dumps(asdict(self), indent=1, sort_keys=True).encode()

    @classmethod
    def load(cls, content: bytes) -> Manifest:
        """Return the manifest from bytes; raise `AoError` if a path leads out of a workspace or any value is malformed."""
        data = json.loads(content)
        if data.get("format") != FORMAT:
            raise AoError(f"this rescue has format {data.get('format')}, known here is {FORMAT}", "use a newer version")
        try:
            data["entries"] = [SavedEntry(**entry) for entry in data["entries"]]
            data["stashes"] = [(sha, message) for sha, message in data["stashes"]]
            manifest = cls(**data)
            invalid = next(manifest._invalid_values(), None)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            invalid = str(error)
        if invalid is not None:
            raise AoError(f"this is no rescue that was made here: {invalid[:200]!r}", "look at it by git show")
        return manifest

    def _invalid_values(self) -> Iterator[str]:
        """Yield values that no workspace of ours could have had."""
        for entry in self.entries:
            if entry.kind not in _KINDS or type(entry.mode) is not int:
                yield entry.kind
        for path in (*(entry.path for entry in self.entries), *self.absent, *self.empty, *self.filled):
            if not _is_inside(path):
                yield path
        for name in self.git_files:
            if not _STATE.fullmatch(name) or not _is_inside(name):
                yield name
        refs = (*self.refs, *([] if self.head_ref is None else [self.head_ref]))
        yield from (name for name in refs if not _REF.fullmatch(name))
        objects = (
            *(entry.blob for entry in self.entries),
            *(*self.git_files.values(), *self.refs.values(), *self.tags, *self.tags.values()),
            *(*(sha for sha, _ in self.stashes), *([] if self.head is None else [self.head])),
        )
        yield from (name for name in objects if not _OBJECT.fullmatch(name))


def _is_inside(path: str) -> bool:
    """Return whether a path is below a workspace and not in its own Git folder."""
    try:
        return parts_of(path)[0] != ".git"
    except UnsafePath:
        return False
