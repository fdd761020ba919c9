"""Repair of a home's small files: access modes, tokens, configuration, and leftovers of an ended daemon."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
from pathlib import Path

from agent_orchestrator.base import keyring
from agent_orchestrator.base.files.safe import read_regular_file
from agent_orchestrator.base.processes import is_process_running
from agent_orchestrator.config.load import load_file
from agent_orchestrator.daemon.repair.backup import Repair
from agent_orchestrator.errors import AoError

_TOKEN = re.compile(r"aoc_[A-Za-z0-9_-]{20,}")
"""The format of the client token."""
_SECRET = re.compile(r"[A-Za-z0-9_-]{20,}")
"""The format of the secret that agents' tokens are made with."""
_UNFINISHED_PATTERNS = ("*~", "*.new", "*.tmp")
"""Patterns of files that were left by an interrupted write."""
_PRIVATE_PATTERNS = (
    "ao.db",
    "ao.db-wal",
    "ao.db-shm",
    "ao.*.bak",
    "token",
    "token.secret",
    "tokens.json",
    "daemon.log",
    "daemon.log.*",
    "daemon.json",
)
"""Patterns of files that only the owner may read."""


def repair_files(repair: Repair) -> None:
    """Check and repair all small files."""
    _repair_modes(repair)
    _repair_token(repair, repair.home.token, _TOKEN, "a new one is made; whoever has the old one signs in again")
    secret = repair.home.path / "token.secret"
    _repair_token(
        repair,
        secret,
        _SECRET,
        "a new one is made; running agents' own tokens open nothing until they are started anew",
    )
    _repair_named_tokens(repair)
    _repair_configuration(repair)
    _remove_leftovers(repair)


def read_content(path: Path) -> bytes:
    """Return a file's content; raise `OSError` if it is no regular file, like a pipe or an endless device."""
    return read_regular_file(path.resolve())


def _repair_modes(repair: Repair) -> None:
    """Restrict private files and folders to the owner, and report those of another user."""
    home, has_problem = repair.home, False
    folders = [folder for folder in (home.path, home.sessions, home.worktrees) if folder.is_dir()]
    folders += [folder for folder in home.sessions.glob("*") if folder.is_dir()] if home.sessions.is_dir() else []
    files = [file for pattern in _PRIVATE_PATTERNS for file in home.path.glob(pattern) if file.is_file()]
    for path, mode in [*((folder, 0o700) for folder in folders), *((file, 0o600) for file in files)]:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            continue
        if status.st_uid != os.getuid():
            has_problem = True
            remedy = f"sudo chown {os.getuid()} {path}"
            repair.report("modes", "failed", f"{path} belongs to another user (uid {status.st_uid})", remedy)
        elif stat.S_IMODE(status.st_mode) & 0o077 or (stat.S_IMODE(status.st_mode) & mode) != mode:
            has_problem = True
            current_mode = f"{stat.S_IMODE(status.st_mode):o}"
            if repair.report_repair("modes", f"{path} has mode {current_mode}", f"mode {mode:o}"):
                path.chmod(mode)
    if not has_problem:
        repair.report("modes", "ok", "nobody else may read what is private")


def _repair_token(repair: Repair, path: Path, pattern: re.Pattern[str], consequence: str) -> None:
    """Put a token file aside if its content has the wrong format; `consequence` is added to the finding."""
    if not path.exists():
        repair.report(path.name, "ok", "not there; it is made when it is needed")
        return
    try:
        text = read_content(path).decode().strip()
    except (OSError, ValueError):
        text = ""
    if pattern.fullmatch(text):
        repair.report(path.name, "ok", str(path))
    elif repair.report_repair(path.name, f"{path} holds no token", consequence):
        repair.move_to_backup(path)


def _repair_named_tokens(repair: Repair) -> None:
    """Put the file of named tokens aside if it cannot be read."""
    path = repair.home.path / "tokens.json"
    if not path.exists():
        return
    try:
        names = [str(entry["name"]) for entry in json.loads(read_content(path))["tokens"]]
        repair.report("tokens.json", "ok", f"{len(names)} tokens and sign-ins")
    except (OSError, ValueError, KeyError, TypeError) as error:
        action = "put aside; named tokens are made anew with `ao token new`, browsers sign in again"
        if repair.report_repair("tokens.json", f"{path} cannot be read ({error})", action):
            repair.move_to_backup(path)


def _repair_configuration(repair: Repair) -> None:
    """Put the configuration aside if it is binary; report other errors, which only a person can correct."""
    path = repair.home.config
    if not path.exists():
        return
    try:
        if b"\0" in read_content(path):
            if repair.report_repair("configuration", f"{path} is no text any more", "put aside; defaults are in force"):
                repair.move_to_backup(path)
            return
        load_file(path, os.environ, keyring.read)
    except (AoError, OSError) as error:
        # A person wrote this file, so it is not changed here.
        repair.report("configuration", "warning", str(error), f"correct {path}; until then defaults are in force")
    else:
        repair.report("configuration", "ok", str(path))


def _remove_leftovers(repair: Repair) -> None:
    """Put aside the info file and socket of a daemon that is gone, and unfinished files."""
    home, has_leftovers = repair.home, False
    info = home.daemon_info
    if info.exists() and not _is_daemon_alive(info):
        has_leftovers = True
        if repair.report_repair("leftovers", f"{info} speaks of a daemon that is gone", "put aside"):
            repair.move_to_backup(info)
    sock = home.socket("daemon.sock")
    if sock.exists() and not _is_listening(sock):
        has_leftovers = True
        if repair.report_repair("leftovers", f"nobody listens at {sock}", "removed"):
            sock.unlink()
    private = home.sessions.glob("*/") if home.sessions.is_dir() else iter(())
    for folder in (home.path, *private):
        for path in (path for pattern in _UNFINISHED_PATTERNS for path in folder.glob(pattern) if path.is_file()):
            has_leftovers = True
            if repair.report_repair("leftovers", f"{path} was never finished", "put aside"):
                repair.move_to_backup(path)
    if not has_leftovers:
        repair.report("leftovers", "ok", "none")


def _is_daemon_alive(info: Path) -> bool:
    """Return whether the daemon of an info file is alive."""
    try:
        return is_process_running(int(json.loads(read_content(info))["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _is_listening(path: Path) -> bool:
    """Return whether a process listens at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(2.0)
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True
