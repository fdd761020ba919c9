"""The paths of all files below `$AO_HOME`. Imports nothing heavy, as the command line uses it too."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

_MAX_HOME_BYTES = 75
"""In bytes; leaves room for the longest name of a socket. One limit for all names, so that all sockets are in one folder."""


class Home:
    """The paths below one `$AO_HOME`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def from_environment(cls) -> Home:
        """Return the home that this process uses."""
        path = os.environ.get("AO_HOME")
        return cls(Path(path).expanduser().absolute() if path else Path.home() / ".agent-orchestrator")

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
        """The file that the daemon holds a lock on while it runs."""
        return self.path / "daemon.lock"

    @property
    def daemon_info(self) -> Path:
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
    def trusted_settings(self) -> Path:
        """Digests of those daemon-wide settings in repositories' configuration files that a person trusts; read before
        the event log is open.
        """
        return self.path / "trusted"

    @property
    def prices(self) -> Path:
        """The user's own prices of models; may be missing."""
        return self.path / "prices.json"

    @property
    def programs(self) -> Path:
        """A folder on the PATH of agents and checks: it holds only `ao`, which runs with the daemon's interpreter."""
        return self.path / "bin"

    @property
    def sessions(self) -> Path:
        """The folder of the sessions' private folders."""
        return self.path / "sessions"

    @property
    def worktrees(self) -> Path:
        """The real workspaces: `<project>/<name>`."""
        return self.path / "worktrees"

    @property
    def repositories(self) -> Path:
        """Clones of repositories that were given by URL, where the caller had no working directory."""
        return self.path / "repositories"

    @property
    def completion_folder(self) -> Path:
        """The names that shells complete, one file per kind."""
        return self.path / "names"

    @property
    def schema(self) -> Path:
        """The configuration's JSON Schema, for editors."""
        return self.path / "schema.json"

    def session(self, session: str) -> Path:
        """Return a session's private folder: spool, inbox, task file, terminal log, hooks."""
        return self.sessions / session

    def spool(self, session: str, generation: int) -> Path:
        """Return the file to which a session's launch writes its reports."""
        return self.session(session) / f"spool.{generation}.jsonl"

    def terminal_log(self, session: str) -> Path:
        """Return the raw log of what the session's terminal showed."""
        return self.session(session) / "terminal.log"

    def socket(self, name: str) -> Path:
        """Return the path of a Unix socket. A long `$AO_HOME` would exceed the kernel's limit of 104 bytes, so its
        sockets are in a short folder.
        """
        if len(os.fsencode(self.path)) <= _MAX_HOME_BYTES:
            return self.path / name
        folder = f"ao-{os.getuid()}-{hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]}"
        for short_folder in (Path(tempfile.gettempdir()) / folder, Path("/tmp") / folder):
            if len(os.fsencode(short_folder)) <= _MAX_HOME_BYTES:
                break
        return short_folder / name

    def create_folders(self) -> None:
        """Create the folders, for the owner only. Raises `PermissionError` if others could write to them."""
        sockets = self.socket("x").parent
        for folder in (self.path, self.sessions, self.worktrees, sockets):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = folder.stat()
            if {status.st_uid, folder.lstat().st_uid} != {os.getuid()}:  # the folder, or a symlink in its place
                raise PermissionError(f"{folder} belongs to another user")
            if status.st_mode & 0o002:
                raise PermissionError(f"everybody may write to {folder}: chmod 700 {folder}")
        if sockets != self.path and sockets.is_symlink():  # its parent folder is writable by everyone
            raise PermissionError(f"{sockets} is a symlink: remove it")


def restrict_umask() -> None:
    """Set the umask, so that files which this process creates are not writable by everyone."""
    os.umask(os.umask(0o077) | 0o002)
