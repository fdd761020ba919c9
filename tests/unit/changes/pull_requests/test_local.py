"""Effects of pull requests, and how long they are tried."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agent_orchestrator.changes.pull_requests.local import Pulls
from agent_orchestrator.core.effects import Hindered
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import AoError, NotFound, Temporary

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("error", [Temporary("no room"), NotFound("no project")])
@pytest.mark.parametrize("kind", ["check", "compare", "open-pr", "ready-pr"])
async def test_what_cannot_be_done_now_is_done_as_soon_as_it_can(kind: str, error: AoError) -> None:
    class Failing(dict[str, Any]):
        def __getitem__(self, _key: str) -> Any:
            raise error

    flow: Any = SimpleNamespace(sessions=Failing(), on_change=[])
    none: Any = None
    pulls = Pulls(flow, none, none, none, none, none, none)
    with pytest.raises(Hindered):
        await pulls.effects()[kind].run(Intent(kind, f"{kind}:app-x", "app-x"), 0)
