"""Fixtures: the test forges and the schemas that real forges publish. `make test-forges` fetches these; without them the tests skip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.github import GitHubServer
from tests.forges import fetch


def published(package: fetch.PublishedPackage) -> Path:
    """Return the path of the package's first file; skip the test if the package was not fetched."""
    if not package.is_present:
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
