"""Writes to a failing store are retried at once, without pauses."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_orchestrator.core.engine.WRITE_RETRY_SECONDS", 0.0)
