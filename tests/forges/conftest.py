"""The test forges beside what the real ones publish about themselves. `make test-forges` fetches that; without it these skip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.github import GitHubServer
from tests.forges import fetch


def published(package: fetch.Package) -> Path:
    """The package's first file, or the reason why there is no test."""
    if not package.present:
        pytest.skip(f"{package.name} {package.version} is not fetched: make test-forges")
    return package.path(package.files[0])


@pytest.fixture(scope="session")
def schema() -> Path:
    pytest.importorskip("graphql", reason="graphql-core is not installed: make test-forges")
    return published(fetch.GRAPHQL)


@pytest.fixture
def forge(schema: Path) -> Iterator[GitHubServer]:
    with GitHubServer(schema=schema) as server:
        yield server
