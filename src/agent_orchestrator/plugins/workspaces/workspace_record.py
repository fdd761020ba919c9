"""The record of a workspace in the session's private folder, so that an attempt after a crash knows what the earlier one made."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from agent_orchestrator.base.git.refs import read_head
from agent_orchestrator.errors import AoError, resource_shortage
from agent_orchestrator.protocols import WorkspaceInfo, WorkspaceSpec


@dataclass(frozen=True, slots=True)
class WorkspaceRecord:
    """The record of one workspace: written before its first file is made, and again when it is complete."""

    path: str
    branch: str
    base: str
    base_commit: str
    start: str
    """The commit at which the branch stood when the workspace was begun."""
    made_branch: bool
    """Whether the branch was made for this workspace: a failed creation removes it again, unless it has new commits."""
    made: bool = False
    git_dir: str = ""
    notes: tuple[str, ...] = ()
    git_env: dict[str, str] = field(default_factory=dict)

    def info(self) -> WorkspaceInfo:
        """Return the workspace's current state."""
        git_dir = Path(self.git_dir)
        return WorkspaceInfo(
            path=Path(self.path),
            branch=self.branch,
            base=self.base,
            base_commit=self.base_commit,
            head=read_head(git_dir) or self.start,
            git_dir=git_dir,
            notes=self.notes,
            git_env=self.git_env,
            shared=not git_dir.is_relative_to(self.path),
        )

    def complete(self, git_dir: Path, notes: list[str], git_env: dict[str, str]) -> WorkspaceRecord:
        """Return the record of the finished workspace."""
        return replace(self, made=True, git_dir=str(git_dir), notes=tuple(notes), git_env=git_env)


def record_file(spec: WorkspaceSpec) -> Path:
    """Return the path of a session's record."""
    return spec.private / "workspace.json"


def read_record(spec: WorkspaceSpec) -> WorkspaceRecord | None:
    """Return the record of an earlier attempt at this workspace, or None. Raises `AoError` if it cannot be read."""
    try:
        fields = json.loads(record_file(spec).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        unreadable = AoError(f"{record_file(spec)} cannot be read: {error}", "remove it and try again")
        raise resource_shortage(error) or unreadable from None
    record = WorkspaceRecord(**{**fields, "notes": tuple(fields["notes"])})
    return record if record.path == str(spec.path) and record.branch == spec.branch else None


def write_record(spec: WorkspaceSpec, record: WorkspaceRecord) -> None:
    """Write the record so that it survives a power failure: the branch that is made next must be recognized as ours."""
    file = record_file(spec)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = file.with_suffix(".new")
    with temporary.open("w") as stream:
        json.dump(asdict(record), stream)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(file)


def forget_record(spec: WorkspaceSpec) -> None:
    """Delete the record."""
    record_file(spec).unlink(missing_ok=True)
    record_file(spec).with_suffix(".new").unlink(missing_ok=True)
