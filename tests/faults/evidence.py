"""What can be seen without asking the daemon: processes, the agents' own log, Git's objects, the rows of the database."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.faults.play import World


def processes() -> Iterator[tuple[int, bytes]]:
    """Every process with its command line."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                yield int(entry.name), (entry / "cmdline").read_bytes()


def environment(pid: int) -> dict[bytes, bytes]:
    try:
        return dict(one.partition(b"=")[::2] for one in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:
        return {}


def agents(world: World) -> dict[str, list[int]]:
    """Live demo agents by session, as the kernel knows them."""
    found: dict[str, list[int]] = {}
    home = str(world.box.home.path).encode()
    for pid, command in processes():
        if b"from demo_agent." not in command or b"pty_holder.holder" in command or b"/sh\0" in command[:9]:
            continue
        environ = environment(pid)
        if not environ.get(b"AO_SPOOL", b"").startswith(home):
            continue
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.setdefault(environ[b"AO_SESSION"].decode(), []).append(pid)
    return found


def holders(world: World) -> list[int]:
    home = str(world.box.home.path).encode()
    return [pid for pid, command in processes() if b"pty_holder.holder" in command and home in command]


def tmux_servers(world: World) -> list[int]:
    socket = str(world.box.home.socket("tmux.sock")).encode()
    return [pid for pid, command in processes() if command.startswith(b"tmux") and socket in command]


def truth(world: World) -> list[dict[str, Any]]:
    """What the agents themselves say happened, each with its session."""
    if not world.truth.exists():
        return []
    entries, sessions = [], {}
    for line in world.truth.read_text(errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if entry["event"] == "start":
                sessions[entry["pid"]] = entry["session"]
            entries.append({"session": sessions.get(entry["pid"], ""), **entry})
    return entries


def git(world: World, *argv: str, text: str | None = None) -> str:
    """Git as anybody would ask it; what it prints, whether it failed or not."""
    done = subprocess.run(
        ["git", *argv],
        cwd=world.box.repo,
        env=world.box.env,
        input=text,
        capture_output=True,
        text=True,
        check=False,
        errors="surrogateescape",
    )
    return done.stdout


def contents(world: World, names: Sequence[str]) -> dict[str, str | None]:
    """What Git has under these names (`REF:PATH`); none where it has nothing."""
    if not names:
        return {}
    out = git(world, "cat-file", "--batch", text="".join(f"{name}\n" for name in names))
    found: dict[str, str | None] = {}
    place = 0
    for name in names:
        head, _, _ = out[place:].partition("\n")
        place += len(head) + 1
        fields = head.split()
        if len(fields) == 3 and fields[1] == "blob":
            found[name] = out[place : place + int(fields[2])]
            place += int(fields[2]) + 1
        else:
            found[name] = None
    return found


def pending(world: World) -> list[tuple[str, str, str, float]]:
    """What the outbox still has to do: key, kind, session, seconds until then."""
    rows = _rows(world, "select key, kind, session, due from outbox where state = 'pending'")
    now = time_there(world)
    return [(key, kind, session, due - now) for key, kind, session, due in rows]


def time_there(world: World) -> float:
    """What the daemon takes for the time: its clock never goes back while it runs."""
    start = "select coalesce(max(seq), 0) from events where type = 'daemon-started'"
    rows = _rows(world, f"select max(time) from events where seq >= ({start})")
    return max([world.clock.now(), *(row[0] or 0.0 for row in rows)])


def last_event(world: World) -> float:
    return float(next(iter(_rows(world, "select coalesce(max(seq), 0) from events")), (0,))[0])


def _rows(world: World, query: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(f"file:{world.box.home.database}?mode=ro", uri=True, timeout=5)) as base:
        try:
            return base.execute(query).fetchall()
        except sqlite3.OperationalError:
            return []
