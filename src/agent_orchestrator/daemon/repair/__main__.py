"""The repair program: repairs the home that `$AO_HOME` names and prints the findings as JSON, which `ao doctor --repair` shows."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.daemon.repair import database, files, orphans, workspaces
from agent_orchestrator.daemon.repair.backup import Repair
from agent_orchestrator.errors import AoError, Conflict, NotFound


async def run(home: Home, *, dry: bool) -> Repair:
    """Check everything, and repair what is damaged unless `dry`; return the repair with its findings."""
    repair = Repair(home, dry)
    if home.path.stat().st_uid != os.getuid():
        raise Conflict(f"{home.path} belongs to another user", "set AO_HOME to a folder of your own")
    files.repair_files(repair)
    events = database.repair_database(repair)
    if events is not None:
        sessions, host = database.fold_sessions(events), LocalHost()
        await workspaces.repair_workspaces(repair, host, sessions)
        await orphans.report_orphans(repair, host, sessions)
    return repair


@contextmanager
def hold_daemon_lock(home: Home) -> Iterator[None]:
    """Hold the daemon's lock, so that none starts meanwhile; raise `Conflict` if one is running."""
    if not home.path.is_dir():
        raise NotFound(f"there is no {home.path}", "set AO_HOME to the home that is damaged")
    if home.path.stat().st_uid == os.getuid() and not os.access(home.path, os.W_OK | os.X_OK):
        home.path.chmod(0o700)
    with home.lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise Conflict(
                f"a daemon runs for {home.path} (pid {file.read().strip()})",
                "end it first with `ao shutdown`; sessions run on meanwhile",
            ) from None
        yield


def main() -> int:
    """Repair the home, and print the result as JSON; return 0 also for errors, which are part of the result."""
    parser = argparse.ArgumentParser(prog="agent_orchestrator.daemon.repair")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    home = Home.from_environment()
    try:
        with hold_daemon_lock(home):
            repair = asyncio.run(run(home, dry=options.dry_run))
    except AoError as error:
        answer = {"error": error.text, "remedy": error.remedy, "exit": error.exit_code}
    except (OSError, shutil.Error) as error:
        answer = {
            "error": f"{home.path} cannot be repaired: {error}",
            "remedy": "make room, or see who owns it",
            "exit": 1,
        }
    else:
        answer = {
            "checks": [finding.json() for finding in repair.findings],
            "kept": str(repair.backup_folder) if repair.backup_folder else None,
        }
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
