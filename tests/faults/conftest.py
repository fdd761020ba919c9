"""Fixtures of the fault tests: daemons are started as people start them."""

from __future__ import annotations

import pytest

from agent_orchestrator.testing import sandbox


@pytest.fixture(autouse=True)
def fresh_daemons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "launch", sandbox.fresh)
