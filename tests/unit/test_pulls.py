"""Effects of pull requests, and how long they are tried."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.flow.effects import Hindered
from agent_orchestrator.flow.reactions import Intent
from agent_orchestrator.services.pulls import Pulls

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("error", "raised"), [(Temporary("no room"), Hindered), (AoError("no project"), AoError)])
async def test_a_check_that_cannot_be_run_now_is_run_as_soon_as_it_can(error: AoError, raised: type) -> None:
    def project(_name: str) -> None:
        raise error

    facts = SimpleNamespace(id="app-x", project="app", pr=SimpleNamespace(), head="1")
    flow: Any = SimpleNamespace(sessions={"app-x": facts}, on_change=[])
    plugins: Any = SimpleNamespace(project=project)
    none: Any = None
    pulls = Pulls(flow, none, none, plugins, none, none, none)
    with pytest.raises(raised):
        await pulls.effects()["check"].run(Intent("check", "check:app-x", "app-x"), 0)
