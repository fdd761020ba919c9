"""The dashboard's TypeScript types match the API."""

from __future__ import annotations

from pathlib import Path

from agent_orchestrator.server.schema.typescript import typescript

FILE = Path(__file__).parents[3] / "dashboard" / "src" / "api" / "types.ts"


def test_the_types_of_the_dashboard_are_current() -> None:
    command = "python -m agent_orchestrator.server.schema.typescript dashboard/src/api/types.ts"
    assert FILE.read_text() == typescript(), f"run: {command}"
