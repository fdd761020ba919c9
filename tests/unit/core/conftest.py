"""A store that fails is tried again at once: nobody waits here."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_orchestrator.core.engine.WRITE_RETRY_SECONDS", 0.0)
