"""Fixtures with one container engine for all tests; without one the tests are skipped with the reason."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.docker import engine as engines
from tests.docker.engine import ContainerEngine, EngineUnavailable


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[ContainerEngine]:
    try:
        with engines.docker() as engine:
            yield engine
    except EngineUnavailable as why:
        pytest.skip(str(why))


@pytest.fixture(scope="session")
def podman_engine() -> Iterator[ContainerEngine]:
    try:
        with engines.podman() as engine:
            yield engine
    except EngineUnavailable as why:
        pytest.skip(str(why))


@pytest.fixture
def docker(docker_engine: ContainerEngine, monkeypatch: pytest.MonkeyPatch) -> ContainerEngine:
    """The engine, with the environment of this process set to use it."""
    return _lead(docker_engine, monkeypatch)


@pytest.fixture
def podman(podman_engine: ContainerEngine, monkeypatch: pytest.MonkeyPatch) -> ContainerEngine:
    """The engine, with the environment of this process set to use it."""
    return _lead(podman_engine, monkeypatch)


def _lead(engine: ContainerEngine, monkeypatch: pytest.MonkeyPatch) -> ContainerEngine:
    for name, value in engine.env.items():
        monkeypatch.setitem(os.environ, name, value)
    return engine
