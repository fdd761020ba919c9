"""Evidence that does not come from the daemon: processes, the agents' log, Git's objects, the rows of the database."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.faults.play import FaultWorld


def processes() -> Iterator[tuple[int, bytes]]:
    """Yield the pid and command line of every process."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                yield int(entry.name), (entry / "cmdline").read_bytes()


def environment(pid: int) -> dict[bytes, bytes]:
    try:
        return dict(
            variable.partition(b"=")[::2] for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        )
    except OSError:
        return {}


def live_agents(world: FaultWorld) -> dict[str, list[int]]:
    """Return the pids of live demo agents by session, from /proc."""
    pids_by_session: dict[str, list[int]] = {}
    home = str(world.box.home.path).encode()
    for pid, command in processes():
        if b"from demo_agent." not in command or b"pty_holder.holder" in command or b"/sh\0" in command[:9]:
            continue
        environ = environment(pid)
        if not environ.get(b"AO_SPOOL", b"").startswith(home):
            continue
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                pids_by_session.setdefault(environ[b"AO_SESSION"].decode(), []).append(pid)
    return pids_by_session


def holders(world: FaultWorld) -> list[int]:
    home = str(world.box.home.path).encode()
    return [pid for pid, command in processes() if b"pty_holder.holder" in command and home in command]


def tmux_servers(world: FaultWorld) -> list[int]:
    socket = str(world.box.home.socket("tmux.sock")).encode()
    return [pid for pid, command in processes() if command.startswith(b"tmux") and socket in command]


def agent_records(world: FaultWorld) -> list[dict[str, Any]]:
    """Return the records of the agents' log, each with its session."""
    if not world.truth.exists():
        return []
    records, sessions = [], {}
    for line in world.truth.read_text(errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            record = json.loads(line)
            if record["event"] == "start":
                sessions[record["pid"]] = record["session"]
            records.append({"session": sessions.get(record["pid"], ""), **record})
    return records


def git(world: FaultWorld, *argv: str, text: str | None = None) -> str:
    """Run Git and return its output, whether it failed or not."""
    completed = subprocess.run(
        ["git", *argv],
        cwd=world.box.repo,
        env=world.box.env,
        input=text,
        capture_output=True,
        text=True,
        check=False,
        errors="surrogateescape",
    )
    return completed.stdout


def blob_contents(world: FaultWorld, names: Sequence[str]) -> dict[str, str | None]:
    """Return the contents of these blobs (`REF:PATH`), None for missing ones."""
    if not names:
        return {}
    out = git(world, "cat-file", "--batch", text="".join(f"{name}\n" for name in names))
    contents: dict[str, str | None] = {}
    position = 0
    for name in names:
        head, _, _ = out[position:].partition("\n")
        position += len(head) + 1
        fields = head.split()
        if len(fields) == 3 and fields[1] == "blob":
            contents[name] = out[position : position + int(fields[2])]
            position += int(fields[2]) + 1
        else:
            contents[name] = None
    return contents


def pending_rows(world: FaultWorld) -> list[tuple[str, str, str, float]]:
    """Return the pending rows of the outbox: key, kind, session, seconds until due."""
    rows = _rows(world, "select key, kind, session, due from outbox where state = 'pending'")
    now = daemon_time(world)
    return [(key, kind, session, due - now) for key, kind, session, due in rows]


def daemon_time(world: FaultWorld) -> float:
    """Return the daemon's time: its clock never goes back while it runs."""
    start = "select coalesce(max(seq), 0) from events where type = 'daemon-started'"
    rows = _rows(world, f"select max(time) from events where seq >= ({start})")
    return max([world.clock.now(), *(row[0] or 0.0 for row in rows)])


def last_event_time(world: FaultWorld) -> float:
    return float(next(iter(_rows(world, "select coalesce(max(seq), 0) from events")), (0,))[0])


def _rows(world: FaultWorld, query: str) -> list[Any]:
    with contextlib.closing(sqlite3.connect(f"file:{world.box.home.database}?mode=ro", uri=True, timeout=5)) as base:
        try:
            return base.execute(query).fetchall()
        except sqlite3.OperationalError:
            return []
