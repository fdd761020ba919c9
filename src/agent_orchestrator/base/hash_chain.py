"""The chain of digests over the event log: each entry's digest covers the entry and the digest before it.

What was recorded cannot be changed, put in or taken out in the middle without breaking the chain from there on. Pure, and the same
for the daemon, which writes the log, and for whoever checks an exported one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

COVERED = (
    *("seq", "key", "type", "project", "session", "generation", "source", "at", "actor", "cause"),
    "data",
)
"""What a digest covers, in this order; `at` is the time in seconds since the epoch, `data` the text of the entry's JSON."""


_encoder = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False
)  # made anew for each text it would cost more than the text


@dataclass(frozen=True, slots=True)
class Head:
    """The last entry of a log: who kept this elsewhere sees whether something was cut off since."""

    seq: int = 0
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.seq}:{self.digest}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of following a chain."""

    entries: int
    head: Head
    """The last entry that fits."""
    broken: int | None = None
    """The first entry that does not fit; none: all do."""
    reason: str = ""


def text(data: Any) -> str:
    """JSON as the log has it."""
    return _encoder.encode(data)


def digest(before: str, entry: Mapping[str, Any]) -> str:
    """An entry's digest: SHA-256 over the digest before it, a line break, and what is covered as one JSON list."""
    covered = text(_covered(entry))
    return hashlib.sha256(f"{before}\n{covered}".encode()).hexdigest()


_covered = itemgetter(*COVERED)


class Chain:
    """Follows a log from its first entry on."""

    def __init__(self) -> None:
        self.verdict = Verdict(0, Head())

    def follow(self, entries: Iterable[Mapping[str, Any]]) -> bool:
        """Take the next entries, in order; false once one does not fit."""
        count, seq, last = self.verdict.entries, self.verdict.head.seq, self.verdict.head.digest
        broken, reason = self.verdict.broken, self.verdict.reason
        for entry in entries if broken is None else ():
            if entry["seq"] <= seq:
                broken, reason = entry["seq"], "it is out of order"
                break
            if entry["seq"] != seq + 1:
                gone = entry["seq"] - seq - 1
                broken, reason = seq + 1, f"{gone} {'entries are' if gone > 1 else 'entry is'} missing"
                break
            if entry["digest"] != digest(last, entry):
                broken, reason = entry["seq"], "it was changed, or one before it was"
                break
            count, seq, last = count + 1, entry["seq"], entry["digest"]
        self.verdict = Verdict(count, Head(seq, last), broken, reason)
        return broken is None


def exported(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The entries of an exported log, as they are covered; raises `ValueError` with the line's number."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            yield {**entry, "seq": int(entry["seq"]), "digest": str(entry["digest"]), "data": text(entry["data"])}
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"line {number} is no entry") from None
