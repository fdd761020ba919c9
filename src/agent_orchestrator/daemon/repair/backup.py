"""`Repair`: the findings of a repair, and the folder in which everything that it changed is kept in its old state."""

from __future__ import annotations

import errno
import os
import shutil
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agent_orchestrator.base.files.safe import copy_tree_limited
from agent_orchestrator.base.home import Home

MAX_KEPT_BYTES, MAX_KEPT_FILES = 256 << 20, 10_000
"""Bytes and files that are kept of a folder in which an agent writes, at most."""
_MAX_SHOWN = 5
"""How many paths a finding names, at most."""


@dataclass(frozen=True, slots=True)
class RepairFinding:
    """The result of one check. `state`: `ok`, `repaired`, `damaged` (it would be repaired), `warning` or `failed`."""

    name: str
    state: str
    detail: str
    remedy: str | None = None

    def json(self) -> dict[str, Any]:
        """Return the finding as `ao doctor` shows it."""
        return asdict(self)


@dataclass(slots=True)
class Repair:
    """One repair of a home."""

    home: Home
    is_dry_run: bool = False
    findings: list[RepairFinding] = field(default_factory=list)
    folder: Path = field(init=False)
    """Where what is changed is kept: `$AO_HOME/damaged/<time>`; created with its first content."""

    def __post_init__(self) -> None:
        """Choose a folder name that is not in use."""
        self.folder, number = self.home.path / "damaged" / time.strftime("%Y%m%d-%H%M%S", time.gmtime()), 1
        while self.folder.exists():
            number += 1
            self.folder = self.folder.with_name(f"{self.folder.name[:15]}-{number}")

    def report(self, name: str, state: str, detail: str, remedy: str | None = None) -> None:
        """Add a finding."""
        self.findings.append(RepairFinding(name, state, detail, remedy))

    def report_repair(self, name: str, wrong: str, done: str) -> bool:
        """Add a finding about damage and its repair; return whether to carry out the repair now."""
        self.report(name, "damaged" if self.is_dry_run else "repaired", f"{wrong}: {done}")
        return not self.is_dry_run

    def back_up(self, path: Path) -> None:
        """Copy a file of the orchestrator's own to the folder before it is changed."""
        shutil.copy2(path, self._backup_path(path), follow_symlinks=False)

    def back_up_limited(self, path: Path) -> None:
        """Copy a file or folder that an agent may have filled, up to `MAX_KEPT_BYTES` and `MAX_KEPT_FILES`; report what is left out."""
        if left_out := copy_tree_limited(path, self._backup_path(path), MAX_KEPT_BYTES, MAX_KEPT_FILES):
            sample = ", ".join(str(omitted) for omitted in left_out[:_MAX_SHOWN]) + (
                " …" if len(left_out) > _MAX_SHOWN else ""
            )
            text = f"there is no copy of {sample}: too large, too many, or no plain files"
            self.report("kept", "warning", text, f"look at {path}")

    def move_to_backup(self, path: Path) -> None:
        """Move a file or folder away; it is kept, next to its old path if that is on another file system than the home."""
        try:
            path.rename(self._backup_path(path))
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            folder_nearby = path.with_name(f"damaged-{self.folder.name}")
            folder_nearby.mkdir(mode=0o700, exist_ok=True)
            path.rename(_unused_path(folder_nearby / path.name))
            self.report(
                "kept", "repaired", f"{path} is on another file system than {self.home.path}: it is in {folder_nearby}"
            )

    def append_note(self, name: str, text: str) -> None:
        """Append a text to a file in the folder, for data that is not stored in a separate file."""
        with self._backup_path(self.home.path / name).open("a") as file:
            file.write(text)

    def _backup_path(self, path: Path) -> Path:
        """Return an unused path in the folder for a path, and create its parent folders."""
        is_in_home = path.is_relative_to(self.home.path)
        relative = path.relative_to(self.home.path) if is_in_home else Path("elsewhere", *path.absolute().parts[1:])
        target = self.folder / relative
        for folder in (self.folder.parent, self.folder, target.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _unused_path(target)

    @property
    def backup_folder(self) -> Path | None:
        """The folder with what was changed, or None if nothing was changed."""
        return self.folder if self.folder.is_dir() else None


def _unused_path(path: Path) -> Path:
    """Return a path like this one that does not exist."""
    name, number = path.name, 1
    while os.path.lexists(path):
        path, number = path.with_name(f"{name}.{number}"), number + 1
    return path
