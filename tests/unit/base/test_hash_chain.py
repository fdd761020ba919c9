"""The chain of digests: whatever is changed, put in, taken out or moved is seen, and where."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.base import hash_chain

Entry = dict[str, Any]


def entry(seq: int, **more: Any) -> Entry:
    plain = {
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
    return {"seq": seq, **plain, **more}


def log(count: int) -> list[Entry]:
    found: list[Entry] = []
    for seq in range(1, count + 1):
        one = entry(seq)
        found.append({**one, "digest": hash_chain.digest(found[-1]["digest"] if found else "", one)})
    return found


def followed(entries: list[Entry]) -> hash_chain.ChainResult:
    chain = hash_chain.ChainVerifier()
    chain.follow(entries[:2])
    chain.follow(entries[2:])
    return chain.verdict


def test_a_log_as_it_was_written_fits_and_its_head_is_its_last_entry() -> None:
    entries = log(5)
    assert followed(entries) == hash_chain.ChainResult(5, hash_chain.Head(5, entries[-1]["digest"]))
    assert followed([]) == hash_chain.ChainResult(0, hash_chain.Head())
    assert str(hash_chain.Head(3, "ab")) == "3:ab"


@pytest.mark.parametrize("name", hash_chain.COVERED)
def test_no_part_of_an_entry_can_be_changed_unseen(name: str) -> None:
    entries = log(4)
    entries[1][name] = {"cause": 1, "generation": 2, "at": 1002.4999, "seq": 9}.get(name, "other")
    assert followed(entries).broken == 2


@given(st.integers(1, 6), st.integers(1, 6))
def test_entries_cannot_be_taken_out_put_in_or_moved_unseen(place: int, other: int) -> None:
    entries = log(6)
    without = entries[: place - 1] + entries[place:]
    assert (followed(without).broken or 7) == (
        place if place < 6 else 7
    )  # what is cut off at the end, the head alone tells
    twice = entries[:place] + entries[place - 1 :]
    assert followed(twice).broken is not None
    if place != other:
        entries[place - 1], entries[other - 1] = entries[other - 1], entries[place - 1]
        assert followed(entries).broken is not None


def test_whoever_changes_one_must_change_all_that_follow_and_then_the_head_is_another() -> None:
    forged = [entry(1), entry(2, actor="daemon"), entry(3)]
    last = ""
    for one in forged:
        one["digest"] = last = hash_chain.digest(last, one)
    assert followed(forged).broken is None
    assert followed(forged).head != followed(log(3)).head


def test_an_exported_log_is_read_back_as_it_was() -> None:
    lines = [json.dumps({**one, "data": json.loads(one["data"])}) for one in log(3)]
    assert list(hash_chain.read_export([*lines, ""])) == log(3)
    with pytest.raises(ValueError, match="line 2 is no entry"):
        list(hash_chain.read_export([lines[0], '{"seq": 2}']))
