"""The hash chain over the event log: each entry's digest covers the entry and the digest before it.

An entry cannot be changed, inserted or removed in the middle without breaking the chain from there on. Pure, and
the same code for the daemon, which writes the log, and for checking an exported one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

DIGESTED_FIELDS = (
    *("seq", "key", "type", "project", "session", "generation", "source", "at", "actor", "cause"),
    "data",
)
"""The fields that a digest covers, in this order; `at` is the time in seconds since the epoch, `data` the text of the entry's JSON."""


_encoder = json.JSONEncoder(
    separators=(",", ":"), ensure_ascii=False
)  # shared, as creating one takes longer than encoding an entry


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The last entry of a log: comparing it with a copy kept elsewhere shows whether entries were cut off."""

    seq: int = 0
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.seq}:{self.digest}"


@dataclass(frozen=True, slots=True)
class ChainResult:
    """The result of verifying a chain."""

    entries: int
    head: ChainHead
    """The last valid entry."""
    first_invalid: int | None = None
    """Number of the first invalid entry; None if all are valid."""
    reason: str = ""


def encode_data(data: Any) -> str:
    """Return data as JSON, in the log's form."""
    return _encoder.encode(data)


def digest(before: str, entry: Mapping[str, Any]) -> str:
    """Return an entry's digest: SHA-256 over the digest before it, a line break, and the covered fields as one JSON list."""
    covered = encode_data(_covered_fields(entry))
    return hashlib.sha256(f"{before}\n{covered}".encode()).hexdigest()


_covered_fields = itemgetter(*DIGESTED_FIELDS)


class ChainVerifier:
    """Verifies a log, from its first entry on."""

    def __init__(self) -> None:
        self.result = ChainResult(0, ChainHead())

    def verify(self, entries: Iterable[Mapping[str, Any]]) -> bool:
        """Verify the next entries, in order; return False once one is invalid."""
        count, seq, last_digest = self.result.entries, self.result.head.seq, self.result.head.digest
        broken, reason = self.result.first_invalid, self.result.reason
        for entry in entries if broken is None else ():
            if entry["seq"] <= seq:
                broken, reason = entry["seq"], "it is out of order"
                break
            if entry["seq"] != seq + 1:
                missing = entry["seq"] - seq - 1
                broken, reason = seq + 1, f"{missing} {'entries are' if missing > 1 else 'entry is'} missing"
                break
            if entry["digest"] != digest(last_digest, entry):
                broken, reason = entry["seq"], "it was changed, or one before it was"
                break
            count, seq, last_digest = count + 1, entry["seq"], entry["digest"]
        self.result = ChainResult(count, ChainHead(seq, last_digest), broken, reason)
        return broken is None


def read_export(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the entries of an exported log, in the form that digests cover. Raises `ValueError` with the number of an invalid line."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            yield {
                **entry,
                "seq": int(entry["seq"]),
                "digest": str(entry["digest"]),
                "data": encode_data(entry["data"]),
            }
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"line {number} is no entry") from None
