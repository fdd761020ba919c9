"""Where everything of ours lives: `$AO_HOME`. Names only; imports nothing heavy, for the command line reads it too."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

_LONGEST_HOME = 75
"""In bytes; leaves room for the longest socket's name. One bound for all names, so that all sockets are in one folder."""


class Home:
    """One `$AO_HOME`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def here(cls) -> Home:
        """The one this process is to use."""
        named = os.environ.get("AO_HOME")
        return cls(Path(named).expanduser().absolute() if named else Path.home() / ".agent-orchestrator")

    @property
    def config(self) -> Path:
        """The user's own configuration for all projects."""
        return self.path / "config.yaml"

    @property
    def database(self) -> Path:
        """Event log, facts and outbox."""
        return self.path / "ao.db"

    @property
    def lock(self) -> Path:
        """Held by the daemon while it lives."""
        return self.path / "daemon.lock"

    @property
    def info(self) -> Path:
        """`{pid, startedAt, socket, url, version}` of the daemon."""
        return self.path / "daemon.json"

    @property
    def log(self) -> Path:
        """The daemon's own log."""
        return self.path / "daemon.log"

    @property
    def token(self) -> Path:
        """The command line's token for TCP, mode 0600."""
        return self.path / "token"

    @property
    def trusted(self) -> Path:
        """Digests of what files that came with a repository may decide for the daemon as a whole."""
        return self.path / "trusted"

    @property
    def prices(self) -> Path:
        """The user's own prices of models, if there are any."""
        return self.path / "prices.json"

    @property
    def programs(self) -> Path:
        """On the PATH of agents and checks: holds only `ao`, which runs by the daemon's interpreter."""
        return self.path / "bin"

    @property
    def sessions(self) -> Path:
        """One private folder a session."""
        return self.path / "sessions"

    @property
    def worktrees(self) -> Path:
        """The real workspaces: `<project>/<name>`."""
        return self.path / "worktrees"

    @property
    def repositories(self) -> Path:
        """Clones of what was named by a URL alone, and by nobody who stood anywhere."""
        return self.path / "repositories"

    @property
    def names(self) -> Path:
        """What shells complete, one file a kind."""
        return self.path / "names"

    @property
    def schema(self) -> Path:
        """The configuration's JSON Schema, for editors."""
        return self.path / "schema.json"

    def session(self, session: str) -> Path:
        """A session's private folder: spool, inbox, task file, terminal log, hooks."""
        return self.sessions / session

    def spool(self, session: str, generation: int) -> Path:
        """Where an agent's launch reports."""
        return self.session(session) / f"spool.{generation}.jsonl"

    def terminal_log(self, session: str) -> Path:
        """What the session's terminal showed, raw."""
        return self.session(session) / "terminal.log"

    def socket(self, name: str) -> Path:
        """A Unix socket's path; a long `$AO_HOME` would exceed the kernel's 104 bytes, so it moves to a short folder."""
        if len(os.fsencode(self.path)) <= _LONGEST_HOME:
            return self.path / name
        folder = f"ao-{os.getuid()}-{hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]}"
        for short in (Path(tempfile.gettempdir()) / folder, Path("/tmp") / folder):
            if len(os.fsencode(short)) <= _LONGEST_HOME:
                break
        return short / name

    def make(self) -> None:
        """Make the folders, for the owner only."""
        sockets = self.socket("x").parent
        for folder in (self.path, self.sessions, self.worktrees, sockets):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = folder.stat()
            if {found.st_uid, folder.lstat().st_uid} != {os.getuid()}:  # nor does a symlink of his lead us anywhere
                raise PermissionError(f"{folder} belongs to another user")
            if found.st_mode & 0o002:
                raise PermissionError(f"everybody may write to {folder}: chmod 700 {folder}")
        if sockets != self.path and sockets.is_symlink():  # it stands where everybody may make one
            raise PermissionError(f"{sockets} is a symlink: remove it")


def keep_from_others() -> None:
    """Whatever this process was started with, nothing that it makes from now on may everybody write."""
    os.umask(os.umask(0o077) | 0o002)
