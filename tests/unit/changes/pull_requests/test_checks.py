"""Effects of local pull requests: retried while they cannot be done."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from agent_orchestrator.changes.forge_sync import PullRequestActions
from agent_orchestrator.changes.pull_requests.local_checks import PullRequestChecks
from agent_orchestrator.core.effects import RetryWhileNeeded
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import AoError, NotFound, Temporary
from tests.parts import make_core, never_quiet

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("error", [Temporary("no room"), NotFound("no project")])
@pytest.mark.parametrize("kind", ["check", "compare", "open-pr", "ready-pr"])
async def test_an_effect_that_fails_temporarily_is_retried_while_needed(
    tmp_path: Path, kind: str, error: AoError
) -> None:
    class Failing(dict[str, Any]):
        def __getitem__(self, _key: str) -> Any:
            raise error

    core, none = make_core(tmp_path), cast("Any", None)
    core.flow.facts.sessions = Failing()
    checks = PullRequestChecks(core, none, none, none, never_quiet)
    effects = {**checks.effects(), **PullRequestActions(core, none).effects()}
    with pytest.raises(RetryWhileNeeded):
        await effects[kind].run(Intent(kind, f"{kind}:app-x", "app-x"), 0)
