"""Fixtures for tests of checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_orchestrator.base.home import Home
from tests.integration.checks.stage import CheckStage
from tests.integration.rescue.world import make_repository
from tests.integration.workspaces.disks import small_disk

__all__ = ["small_disk", "stage"]


@pytest.fixture
def stage(tmp_path: Path) -> CheckStage:
    outside = tmp_path / "outside"
    outside.mkdir()
    return CheckStage(make_repository(tmp_path / "repo"), Home(tmp_path / "ao"), outside)
