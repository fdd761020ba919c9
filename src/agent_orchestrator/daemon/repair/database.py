"""Repair of a home's database: it is checked in a copy, and its readable events are moved to a new one if it is damaged."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

from agent_orchestrator.config.config_set import ConfigSet
from agent_orchestrator.config.projects.trusted_files import TrustedFiles
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import Facts, SessionFacts
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.store import salvage
from agent_orchestrator.core.store.migrations import MIGRATIONS
from agent_orchestrator.daemon.repair.backup import Repair
from agent_orchestrator.errors import AoError

_DATABASE_SUFFIXES = ("", "-wal", "-shm")
"""Suffixes of an SQLite database's files."""
_MAX_SHOWN = 5
"""How many items a finding names, at most."""


def repair_database(repair: Repair) -> list[Event] | None:
    """Check and repair the database; return its events, or None if they cannot be read."""
    path = repair.home.database
    if elsewhere := _server_scheme(repair):
        repair.report("database", "ok", f"it is at a server, {elsewhere}, whose own tools see to it")
        return None
    _finish_earlier_repair(repair)
    if not path.exists():
        repair.report("database", "ok", "there is none yet; the next start makes one")
        return []
    with tempfile.TemporaryDirectory(prefix="repair-", dir=repair.home.path) as folder:
        copy = _copy_database(path, Path(folder) / "looked")
        condition = salvage.check_condition(copy)
        if condition.version > len(MIGRATIONS):
            text = f"it is of a newer version ({condition.version}) than this program knows ({len(MIGRATIONS)})"
            repair.report("database", "failed", text, "install the newer agent-orchestrator, or use another AO_HOME")
            return None
        if condition.problems:
            return _salvage(repair, path, Path(folder), condition)
        _repair_records(repair, path, condition)
        return salvage.read_events(copy)


def _server_scheme(repair: Repair) -> str:
    """Return the scheme of the database server that the home uses, or "" if its database is a file."""
    config = ConfigSet(repair.home.config, os.environ, trust=TrustedFiles(Facts(), repair.home))
    try:
        config.load_home()
    except (AoError, OSError):
        return ""
    address = config.daemon.database
    return address.partition("://")[0] if "://" in address else ""


def _copy_database(path: Path, folder: Path) -> Path:
    """Copy the database and its write-ahead log into a new folder; return the copy's path."""
    folder.mkdir()
    for part in _DATABASE_SUFFIXES[:2]:
        file = path.with_name(path.name + part)
        if file.exists():
            shutil.copyfile(file, folder / file.name)
    return folder / path.name


def _rebuilt_path(repair: Repair) -> Path:
    """Return the path on which a repair builds the new database."""
    return repair.home.database.with_suffix(".repaired")


def _finish_earlier_repair(repair: Repair) -> None:
    """Finish a repair that was killed: rename the new database if the old one is moved already, else put the new one aside."""
    rebuilt, path = _rebuilt_path(repair), repair.home.database
    if rebuilt.exists() and path.exists():
        if repair.report_repair("database", f"{rebuilt} is left of an earlier repair", "put aside"):
            repair.move_to_backup(rebuilt)
    elif rebuilt.exists() and repair.report_repair("database", "an earlier repair was cut short", "finished"):
        rebuilt.replace(path)


def _salvage(repair: Repair, path: Path, folder: Path, condition: salvage.Condition) -> list[Event]:
    """Build a new database from what is readable in a damaged one, and exchange them; return the events of the new one."""
    problem = f"{path} is damaged ({condition.problems[0]})"
    salvaged = salvage.salvage(_copy_database(path, folder / "salvaged"))
    rebuilt = folder / "fresh.db"
    salvage.rebuild(salvaged, rebuilt)
    after = salvage.check_condition(rebuilt)
    if after.problems:
        repair.report(
            "database", "failed", f"{problem}, and could not be salvaged: {after.problems[0]}", "restore a backup"
        )
        return []
    outcome = f"{len(salvaged.events)} events and {len(salvaged.outbox)} effects read from it into a new one"
    if gaps := salvaged.gaps:
        ranges = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in gaps[:_MAX_SHOWN])
        outcome += f"; events missing: {ranges}{' …' if len(gaps) > _MAX_SHOWN else ''}"
    backups = sorted(path.parent.glob(f"{path.stem}.v*.bak"))
    if not salvaged.events and backups:
        repair.report(
            "database", "failed", f"{problem}, and no event can be read", f"a backup is there: cp {backups[-1]} {path}"
        )
        return []
    if repair.report_repair("database", problem, f"{outcome}; the damaged one is kept"):
        salvage.rebuild(salvaged, _rebuilt_path(repair))
        for part in _DATABASE_SUFFIXES[::-1]:
            file = path.with_name(path.name + part)
            if file.exists():
                repair.move_to_backup(file)
        _rebuilt_path(repair).replace(path)
    return salvage.read_events(rebuilt)


def _repair_records(repair: Repair, path: Path, condition: salvage.Condition) -> None:
    """Repair damaged records in a database whose file is sound."""
    if condition.unreadable_events:
        sample = ", ".join(map(str, condition.unreadable_events[:_MAX_SHOWN]))
        repair.report(
            "events",
            "warning",
            f"{len(condition.unreadable_events)} events cannot be read and count as unknown ones: {sample}",
            "nothing needs to be done; a backup may have them",
        )
    must_repair = False
    if condition.unreadable_rows:
        keys = ", ".join(str(row["key"]) for row in condition.unreadable_rows[:_MAX_SHOWN])
        must_repair |= repair.report_repair(
            "effects", f"{len(condition.unreadable_rows)} effects cannot be read: {keys}", "taken out"
        )
    if condition.facts:
        must_repair |= repair.report_repair(
            "facts", f"the saved facts are damaged ({condition.facts})", "dropped; the log is folded anew"
        )
    if must_repair:
        for part in _DATABASE_SUFFIXES:
            if (file := path.with_name(path.name + part)).exists():
                repair.back_up(file)
        repair.append_note(
            "effects.jsonl", "".join(json.dumps(row, default=str) + "\n" for row in condition.unreadable_rows)
        )
        salvage.delete_unreadable_rows(path, condition)
    if not (condition.unreadable_events or condition.unreadable_rows or condition.facts):
        repair.report("database", "ok", f"{path}, version {condition.version}")


def fold_sessions(events: list[Event]) -> dict[str, SessionFacts]:
    """Return the sessions in the log, by id; damaged events are skipped."""
    sessions: dict[str, SessionFacts] = {}
    for event in events:
        if not event.session:
            continue
        try:
            facts = reduce(sessions.get(event.session), event)
        except Exception:  # a damaged record; the daemon skips it as well
            continue
        if facts is not None:
            sessions[event.session] = facts
    return sessions
