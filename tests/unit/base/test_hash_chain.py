"""The hash chain of events: changed, inserted, removed and moved entries are detected, with their position."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.base import hash_chain

Entry = dict[str, Any]


def entry(seq: int, **more: Any) -> Entry:
    defaults = {
        "key": f"k{seq}",
        "type": "agent-report",
        "project": "app",
        "session": None,
        "generation": 1,
        "source": "person",
        "at": 1000.5 + seq,
        "actor": "token ci",
        "cause": None,
        "data": '{"text":"grüße"}',
    }
    return {"seq": seq, **defaults, **more}


def log(count: int) -> list[Entry]:
    entries: list[Entry] = []
    for seq in range(1, count + 1):
        row = entry(seq)
        entries.append({**row, "digest": hash_chain.digest(entries[-1]["digest"] if entries else "", row)})
    return entries


def verify(entries: list[Entry]) -> hash_chain.ChainResult:
    chain = hash_chain.ChainVerifier()
    chain.verify(entries[:2])
    chain.verify(entries[2:])
    return chain.result


def test_a_log_without_changes_is_valid_and_its_head_is_its_last_entry() -> None:
    entries = log(5)
    assert verify(entries) == hash_chain.ChainResult(5, hash_chain.ChainHead(5, entries[-1]["digest"]))
    assert verify([]) == hash_chain.ChainResult(0, hash_chain.ChainHead())
    assert str(hash_chain.ChainHead(3, "ab")) == "3:ab"


@pytest.mark.parametrize("name", hash_chain.DIGESTED_FIELDS)
def test_a_change_of_any_field_of_an_entry_is_detected(name: str) -> None:
    entries = log(4)
    entries[1][name] = {"cause": 1, "generation": 2, "at": 1002.4999, "seq": 9}.get(name, "other")
    assert verify(entries).first_invalid == 2


@given(st.integers(1, 6), st.integers(1, 6))
def test_removed_inserted_and_moved_entries_are_detected(position: int, other: int) -> None:
    entries = log(6)
    shortened = entries[: position - 1] + entries[position:]
    assert (verify(shortened).first_invalid or 7) == (
        position if position < 6 else 7
    )  # what is cut off at the end changes only the head
    repeated = entries[:position] + entries[position - 1 :]
    assert verify(repeated).first_invalid is not None
    if position != other:
        entries[position - 1], entries[other - 1] = entries[other - 1], entries[position - 1]
        assert verify(entries).first_invalid is not None


def test_rewriting_all_entries_changes_the_head() -> None:
    forged = [entry(1), entry(2, actor="daemon"), entry(3)]
    last = ""
    for row in forged:
        row["digest"] = last = hash_chain.digest(last, row)
    assert verify(forged).first_invalid is None
    assert verify(forged).head != verify(log(3)).head


def test_an_exported_log_can_be_read_back() -> None:
    lines = [json.dumps({**row, "data": json.loads(row["data"])}) for row in log(3)]
    assert list(hash_chain.read_export([*lines, ""])) == log(3)
    with pytest.raises(ValueError, match="line 2 is no entry"):
        list(hash_chain.read_export([lines[0], '{"seq": 2}']))
