"""The small files of a home: who may read them, tokens, configuration, and what an ended daemon left behind."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
from pathlib import Path

from agent_orchestrator.base import keyring
from agent_orchestrator.base.files.safe import read_plain
from agent_orchestrator.client.daemon_client import alive
from agent_orchestrator.config.load import load
from agent_orchestrator.daemon.repair.backup import Repair
from agent_orchestrator.errors import AoError

_TOKEN = re.compile(r"aoc_[A-Za-z0-9_-]{20,}")
_SECRET = re.compile(r"[A-Za-z0-9_-]{20,}")
_UNFINISHED = ("*~", "*.new", "*.tmp")
_PRIVATE = (
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


def put_in_order(repair: Repair) -> None:
    """Look at every one."""
    _modes(repair)
    _token(repair, repair.home.token, _TOKEN, "a new one is made; whoever has the old one signs in again")
    secret = repair.home.path / "token.secret"
    _token(
        repair,
        secret,
        _SECRET,
        "a new one is made; running agents' own tokens open nothing until they are started anew",
    )
    _named_tokens(repair)
    _configuration(repair)
    _leftovers(repair)


def content(path: Path) -> bytes:
    """Of a file; `OSError` if a pipe or something without an end has its name."""
    return read_plain(path.resolve())


def _modes(repair: Repair) -> None:
    home, wrong = repair.home, False
    folders = [folder for folder in (home.path, home.sessions, home.worktrees) if folder.is_dir()]
    folders += [folder for folder in home.sessions.glob("*") if folder.is_dir()] if home.sessions.is_dir() else []
    files = [file for pattern in _PRIVATE for file in home.path.glob(pattern) if file.is_file()]
    for path, mode in [*((folder, 0o700) for folder in folders), *((file, 0o600) for file in files)]:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            continue
        if found.st_uid != os.getuid():
            wrong = True
            remedy = f"sudo chown {os.getuid()} {path}"
            repair.tell("modes", "failed", f"{path} belongs to another user (uid {found.st_uid})", remedy)
        elif stat.S_IMODE(found.st_mode) & 0o077 or (stat.S_IMODE(found.st_mode) & mode) != mode:
            wrong = True
            was = f"{stat.S_IMODE(found.st_mode):o}"
            if repair.mend("modes", f"{path} has mode {was}", f"mode {mode:o}"):
                path.chmod(mode)
    if not wrong:
        repair.tell("modes", "ok", "nobody else may read what is private")


def _token(repair: Repair, path: Path, right: re.Pattern[str], then: str) -> None:
    if not path.exists():
        repair.tell(path.name, "ok", "not there; it is made when it is needed")
        return
    try:
        text = content(path).decode().strip()
    except (OSError, ValueError):
        text = ""
    if right.fullmatch(text):
        repair.tell(path.name, "ok", str(path))
    elif repair.mend(path.name, f"{path} holds no token", then):
        repair.put_aside(path)


def _named_tokens(repair: Repair) -> None:
    path = repair.home.path / "tokens.json"
    if not path.exists():
        return
    try:
        names = [str(entry["name"]) for entry in json.loads(content(path))["tokens"]]
        repair.tell("tokens.json", "ok", f"{len(names)} tokens and sign-ins")
    except (OSError, ValueError, KeyError, TypeError) as error:
        done = "put aside; named tokens are made anew with `ao token new`, browsers sign in again"
        if repair.mend("tokens.json", f"{path} cannot be read ({error})", done):
            repair.put_aside(path)


def _configuration(repair: Repair) -> None:
    path = repair.home.config
    if not path.exists():
        return
    try:
        if b"\0" in content(path):
            if repair.mend("configuration", f"{path} is no text any more", "put aside; defaults are in force"):
                repair.put_aside(path)
            return
        load(path, os.environ, keyring.read)
    except (AoError, OSError) as error:
        # What a person wrote is for that person to correct.
        repair.tell("configuration", "warning", str(error), f"correct {path}; until then defaults are in force")
    else:
        repair.tell("configuration", "ok", str(path))


def _leftovers(repair: Repair) -> None:
    home, found = repair.home, False
    info = home.info
    if info.exists() and not _says_alive(info):
        found = True
        if repair.mend("leftovers", f"{info} speaks of a daemon that is gone", "put aside"):
            repair.put_aside(info)
    sock = home.socket("daemon.sock")
    if sock.exists() and not _answers(sock):
        found = True
        if repair.mend("leftovers", f"nobody listens at {sock}", "removed"):
            sock.unlink()
    private = home.sessions.glob("*/") if home.sessions.is_dir() else iter(())
    for folder in (home.path, *private):
        for path in (path for pattern in _UNFINISHED for path in folder.glob(pattern) if path.is_file()):
            found = True
            if repair.mend("leftovers", f"{path} was never finished", "put aside"):
                repair.put_aside(path)
    if not found:
        repair.tell("leftovers", "ok", "none")


def _says_alive(info: Path) -> bool:
    try:
        return alive(int(json.loads(content(info))["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(2.0)
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True
