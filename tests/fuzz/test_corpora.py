"""Stored inputs, and a few mutations of them that are the same each time, break no target."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.fuzz.agents import TARGETS as AGENTS
from tests.fuzz.mutations import replace_each_value
from tests.fuzz.target import CORPORA, FuzzTarget
from tests.fuzz.targets import DAEMONLESS_TARGETS
from tests.fuzz.world import world


@pytest.mark.parametrize("target", DAEMONLESS_TARGETS, ids=lambda target: target.name)
def test_a_target_accepts_any_bytes(target: FuzzTarget) -> None:
    target.replay()
    target.explore(target.examples)


@pytest.mark.parametrize("target", AGENTS[:-2], ids=lambda target: target.name)
def test_stored_inputs_of_an_agent_yield_reports(target: FuzzTarget) -> None:
    """Inputs that are not read at all would prove nothing."""
    kinds = {kind for path in target.corpus_files() for kind in counted(target, path.read_bytes())}
    assert kinds & {"MessageTakenReport", "TurnReport"}, kinds


@pytest.mark.parametrize("target", AGENTS[:-2], ids=lambda target: target.name)
def test_replacing_single_values_breaks_no_agent_plugin(target: FuzzTarget) -> None:
    target.replace_each()


@pytest.mark.parametrize(
    "target", [target for target in AGENTS if target.name.endswith("-turn")], ids=lambda target: target.name
)
def test_a_turn_is_read_after_malformed_lines(target: FuzzTarget) -> None:
    for path in target.corpus_files():
        seed = path.read_bytes()
        for lines in replace_each_value(seed):
            odd = b"\n".join([*lines, b""])
            before, both = counted(target, odd), counted(target, odd + seed)
            assert both - before >= counted(target, seed), path


def counted(target: FuzzTarget, data: bytes) -> Counter[str]:
    kinds = target.check(data)
    assert isinstance(kinds, Counter)
    return kinds


def test_a_daemon_accepts_any_bytes() -> None:
    from tests.fuzz.served import daemon_targets

    with world(small=True) as daemon:
        for target in daemon_targets(daemon):
            target.replay()
            target.explore(target.examples)


def test_every_corpus_has_a_target() -> None:
    target_names = {target.name for target in DAEMONLESS_TARGETS} | {
        "webhooks",
        "requests",
        "mcp",
        "git",
        "terminal",
        "command",
    }
    assert {folder.name for folder in CORPORA.iterdir()} == target_names
