"""Fixtures with one PostgreSQL server in a temporary folder; each test has a separate database."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from agent_orchestrator.testing.postgres import PostgresServer, find_programs

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    if find_programs() is None:
        pytest.skip("no PostgreSQL server is installed: scripts/install-postgres")
    with PostgresServer() as server:
        yield server


@pytest.fixture
def database(server: PostgresServer) -> str:
    """The name of a new, empty database."""
    name = f"ao{next(_numbers)}"
    server.database(name)
    return name


@pytest.fixture
def url(server: PostgresServer, database: str) -> str:
    return server.url(database)
