"""A stranger at an address of his own, and a session with a live agent."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.server.security.stranger import ADDRESSES, Stranger


@pytest.fixture
def stranger(shared: Sandbox) -> Iterator[Stranger]:
    stranger = Stranger(shared, f"127.0.0.{next(ADDRESSES)}")
    before = len(shared.home.log.read_text())
    yield stranger
    log = shared.home.log.read_text()[before:]
    found = re.search("(aot|aol|aoc)_|Traceback", log)
    assert not found, log[max(0, found.start() - 300) : found.start() + 1500]


@pytest.fixture(scope="module")
def working(shared: Sandbox) -> str:
    """A session with a live agent."""
    shared.ao("new", "[[wait]]", "--name", "w")
    shared.until(lambda: shared.session("app-w")["activity"] == "idle", "it to be at rest")
    return "app-w"
