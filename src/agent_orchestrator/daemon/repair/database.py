"""The database of a home: looked at in a copy, and salvaged where it is damaged."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

from agent_orchestrator.config.scope import ConfigSet
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.store import salvage
from agent_orchestrator.core.store.migrations import MIGRATIONS
from agent_orchestrator.daemon.repair.backup import Repair
from agent_orchestrator.errors import AoError

_PARTS = ("", "-wal", "-shm")
_FEW = 5


def put_in_order(repair: Repair) -> list[Event] | None:
    """Look at the database and mend it; returns its events, none if there is no telling."""
    path = repair.home.database
    if elsewhere := _elsewhere(repair):
        repair.tell("database", "ok", f"it is at a server, {elsewhere}, whose own tools see to it")
        return None
    _finish_last(repair)
    if not path.exists():
        repair.tell("database", "ok", "there is none yet; the next start makes one")
        return []
    with tempfile.TemporaryDirectory(prefix="repair-", dir=repair.home.path) as folder:
        copy = _copied(path, Path(folder) / "looked")
        found = salvage.look(copy)
        if found.version > len(MIGRATIONS):
            text = f"it is of a newer version ({found.version}) than this program knows ({len(MIGRATIONS)})"
            repair.tell("database", "failed", text, "install the newer agent-orchestrator, or use another AO_HOME")
            return None
        if found.problems:
            return _salvage(repair, path, Path(folder), found)
        _inside(repair, path, found)
        return salvage.log_of(copy)


def _elsewhere(repair: Repair) -> str:
    config = ConfigSet(repair.home.config, os.environ)
    try:
        config.load_home()
    except (AoError, OSError):
        return ""
    named = config.daemon.database
    return named.partition("://")[0] if "://" in named else ""


def _copied(path: Path, folder: Path) -> Path:
    folder.mkdir()
    for part in _PARTS[:2]:
        beside = path.with_name(path.name + part)
        if beside.exists():
            shutil.copyfile(beside, folder / beside.name)
    return folder / path.name


def _fresh(repair: Repair) -> Path:
    return repair.home.database.with_suffix(".repaired")


def _finish_last(repair: Repair) -> None:
    """A repair that was killed had either not begun to exchange the files, or only the last step is missing."""
    fresh, path = _fresh(repair), repair.home.database
    if fresh.exists() and path.exists():
        if repair.mend("database", f"{fresh} is left of an earlier repair", "put aside"):
            repair.put_aside(fresh)
    elif fresh.exists() and repair.mend("database", "an earlier repair was cut short", "finished"):
        fresh.replace(path)


def _salvage(repair: Repair, path: Path, folder: Path, looked: salvage.Looked) -> list[Event]:
    wrong = f"{path} is damaged ({looked.problems[0]})"
    found = salvage.salvage(_copied(path, folder / "salvaged"))
    fresh = folder / "fresh.db"
    salvage.rebuild(found, fresh)
    after = salvage.look(fresh)
    if after.problems:
        repair.tell(
            "database", "failed", f"{wrong}, and could not be salvaged: {after.problems[0]}", "restore a backup"
        )
        return []
    told = f"{len(found.events)} events and {len(found.outbox)} effects read from it into a new one"
    if gaps := found.gaps:
        shown = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in gaps[:_FEW])
        told += f"; events missing: {shown}{' …' if len(gaps) > _FEW else ''}"
    backups = sorted(path.parent.glob(f"{path.stem}.v*.bak"))
    if not found.events and backups:
        repair.tell(
            "database", "failed", f"{wrong}, and no event can be read", f"a backup is there: cp {backups[-1]} {path}"
        )
        return []
    if repair.mend("database", wrong, f"{told}; the damaged one is kept"):
        salvage.rebuild(found, _fresh(repair))
        for part in _PARTS[::-1]:
            beside = path.with_name(path.name + part)
            if beside.exists():
                repair.put_aside(beside)
        _fresh(repair).replace(path)
    return salvage.log_of(fresh)


def _inside(repair: Repair, path: Path, found: salvage.Looked) -> None:
    """What is wrong in a database that is sound as such."""
    if found.unreadable:
        few = ", ".join(map(str, found.unreadable[:_FEW]))
        repair.tell(
            "events",
            "warning",
            f"{len(found.unreadable)} events cannot be read and count as unknown ones: {few}",
            "nothing needs to be done; a backup may have them",
        )
    mend = False
    if found.stuck:
        keys = ", ".join(str(one["key"]) for one in found.stuck[:_FEW])
        mend |= repair.mend("effects", f"{len(found.stuck)} effects cannot be read: {keys}", "taken out")
    if found.facts:
        mend |= repair.mend("facts", f"the saved facts are damaged ({found.facts})", "dropped; the log is folded anew")
    if mend:
        for part in _PARTS:
            if (beside := path.with_name(path.name + part)).exists():
                repair.keep(beside)
        repair.note("effects.jsonl", "".join(json.dumps(one, default=str) + "\n" for one in found.stuck))
        salvage.put_in_order(path, found)
    if not (found.unreadable or found.stuck or found.facts):
        repair.tell("database", "ok", f"{path}, version {found.version}")


def sessions_of(events: list[Event]) -> dict[str, SessionFacts]:
    """The sessions that the log speaks of."""
    found: dict[str, SessionFacts] = {}
    for event in events:
        if not event.session:
            continue
        try:
            after = reduce(found.get(event.session), event)
        except Exception:  # a damaged record says nothing; the daemon leaves it out as well
            continue
        if after is not None:
            found[event.session] = after
    return found
