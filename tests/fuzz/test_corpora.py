"""What is kept is stood, and so are a few inputs near to it, the same ones each time."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.fuzz.agents import TARGETS as AGENTS
from tests.fuzz.mutating import each_odd
from tests.fuzz.target import CORPORA, Target
from tests.fuzz.targets import PURE
from tests.fuzz.world import world


@pytest.mark.parametrize("target", PURE, ids=lambda target: target.name)
def test_any_bytes(target: Target) -> None:
    target.replay()
    target.explore(target.examples)


@pytest.mark.parametrize("target", AGENTS[:-2], ids=lambda target: target.name)
def test_what_is_kept_of_an_agent_is_heard(target: Target) -> None:
    """What nobody listens to could do no harm, and would prove nothing."""
    kinds = {kind for path in target.kept() for kind in counted(target, path.read_bytes())}
    assert kinds & {"MessageTakenReport", "TurnReport"}, kinds


@pytest.mark.parametrize("target", AGENTS[:-2], ids=lambda target: target.name)
def test_each_value_may_be_another(target: Target) -> None:
    target.replace_each()


@pytest.mark.parametrize(
    "target", [one for one in AGENTS if one.name.endswith("-turn")], ids=lambda target: target.name
)
def test_a_turn_is_read_whatever_was_read_before(target: Target) -> None:
    for path in target.kept():
        seed = path.read_bytes()
        for lines in each_odd(seed):
            odd = b"\n".join([*lines, b""])
            before, both = counted(target, odd), counted(target, odd + seed)
            assert both - before >= counted(target, seed), path


def counted(target: Target, data: bytes) -> Counter[str]:
    found = target.check(data)
    assert isinstance(found, Counter)
    return found


def test_a_daemon_stands_what_it_is_sent() -> None:
    from tests.fuzz.served import targets

    with world(small=True) as there:
        for target in targets(there):
            target.replay()
            target.explore(target.examples)


def test_every_corpus_has_its_target() -> None:
    named = {target.name for target in PURE} | {"webhooks", "requests", "mcp", "git", "terminal", "command"}
    assert {folder.name for folder in CORPORA.iterdir()} == named
