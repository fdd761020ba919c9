"""Keys of events that are read from an agent's process, spool and records, and how far these were read.

Part of the fold in `core/fold/sessions.py`. Pure.
"""

from __future__ import annotations

import re
from dataclasses import replace

from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import (
    SessionFacts,
)


def spool_key(session: str, generation: int, start: int, end: int) -> str:
    """Return the key of an event read from the spool: it identifies the line, and says where the next one begins."""
    return f"spool:{session}:{generation}:{start}:{end}"


def launch_end_key(session: str, generation: int) -> str:
    """Return the key of a launch's end; it is recorded once, whichever observer reports it first."""
    return f"ended:{session}:{generation}"


def record_key(session: str, place: str, start: int, end: int, number: int) -> str:
    """Return the key of an event read from an agent's own records: the same for every reading; it says where to continue."""
    return f"heard:{session}:{place.replace(':', '-')}:{start}:{end}:{number}"


def update_positions(facts: SessionFacts, event: Event) -> SessionFacts:
    """Return the facts with the event's time and number, and with how far the spool and the agent's records were read."""
    spool, heard_at, cursors = facts.spool_position, facts.last_sign_at, facts.cursors
    if event.generation == facts.generation and (event.source in ("spool", "mcp") or event.key.startswith("heard:")):
        heard_at = max(heard_at, event.time)
        spool = max(spool, _spool_end(event.key))
        if match := _RECORD_KEY.fullmatch(event.key):
            cursors = {**cursors, match["place"]: max(cursors.get(match["place"], 0), int(match["end"]))}
    return replace(
        facts,
        updated_at=max(facts.updated_at, event.time),
        seq=max(facts.seq, event.seq),
        spool_position=spool,
        last_sign_at=heard_at,
        cursors=cursors,
    )


_RECORD_KEY = re.compile(r"heard:[^:]+:(?P<place>[^:]+):[0-9]+:(?P<end>[0-9]+):[0-9]+", re.ASCII)


def _spool_end(key: str) -> int:
    """Return the position in the spool that an event's key names, or 0 for another key."""
    end = key.rpartition(":")[2]
    return int(end) if key.startswith("spool:") and end.isascii() and end.isdigit() else 0
