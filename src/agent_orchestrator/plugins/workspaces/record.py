"""What is remembered about a workspace in the session's private folder, so that a try after a crash knows what is ours."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from agent_orchestrator.base.git.refs import read_head
from agent_orchestrator.errors import AoError, machine_short
from agent_orchestrator.protocols import WorkspaceInfo, WorkspaceSpec


@dataclass(frozen=True, slots=True)
class Record:
    """One workspace: written before its first file is made, and again when it is complete."""

    path: str
    branch: str
    base: str
    base_commit: str
    start: str
    """Where the branch stood when we began."""
    made_branch: bool
    """The branch is ours: a failed creation takes it away again, unless it has grown."""
    made: bool = False
    git_dir: str = ""
    notes: tuple[str, ...] = ()
    git_env: dict[str, str] = field(default_factory=dict)

    def info(self) -> WorkspaceInfo:
        """The workspace as it is now."""
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

    def complete(self, git_dir: Path, notes: list[str], git_env: dict[str, str]) -> Record:
        """The same workspace, done."""
        return replace(self, made=True, git_dir=str(git_dir), notes=tuple(notes), git_env=git_env)


def record_file(spec: WorkspaceSpec) -> Path:
    """Where a session's record is."""
    return spec.private / "workspace.json"


def read_record(spec: WorkspaceSpec) -> Record | None:
    """The record of an earlier try at this workspace; none if there was none."""
    try:
        found = json.loads(record_file(spec).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        unreadable = AoError(f"{record_file(spec)} cannot be read: {error}", "remove it and try again")
        raise machine_short(error) or unreadable from None
    record = Record(**{**found, "notes": tuple(found["notes"])})
    return record if record.path == str(spec.path) and record.branch == spec.branch else None


def write_record(spec: WorkspaceSpec, record: Record) -> None:
    """Remember it, surviving a power cut: the next thing written is a branch, which must be known as ours."""
    file = record_file(spec)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    with fresh.open("w") as stream:
        json.dump(asdict(record), stream)
        stream.flush()
        os.fsync(stream.fileno())
    fresh.replace(file)


def forget_record(spec: WorkspaceSpec) -> None:
    """There is no such workspace any more."""
    record_file(spec).unlink(missing_ok=True)
    record_file(spec).with_suffix(".new").unlink(missing_ok=True)
