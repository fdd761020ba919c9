"""Faults are done to daemons as people start them."""

from __future__ import annotations

import pytest

from agent_orchestrator.testing import sandbox


@pytest.fixture(autouse=True)
def as_people_start_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "launch", sandbox.fresh)
