"""A client at its own address, and a session with a live agent."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.server.security.tcp_client import ADDRESSES, TcpClient


@pytest.fixture
def tcp_client(shared: Sandbox) -> Iterator[TcpClient]:
    client = TcpClient(shared, f"127.0.0.{next(ADDRESSES)}")
    before = len(shared.home.log.read_text())
    yield client
    log = shared.home.log.read_text()[before:]
    leak = re.search("(aot|aol|aoc)_|Traceback", log)
    assert not leak, log[max(0, leak.start() - 300) : leak.start() + 1500]


@pytest.fixture(scope="module")
def working_session(shared: Sandbox) -> str:
    """Create a session with a live agent and return its id."""
    shared.ao("new", "[[wait]]", "--name", "w")
    shared.wait_until(lambda: shared.session("app-w")["activity"] == "idle", "it to be at rest")
    return "app-w"
