"""The fixture for tests of merges."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.merge.world import MergeWorld, make_world


@pytest.fixture
def world(tmp_path: Path) -> MergeWorld:
    return make_world(tmp_path)
