"""Which file answers where; a file is loaded when it is asked for."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest
from fastapi.routing import APIRoute

from agent_orchestrator.server.routing import OF_SESSION, PARTS, file_of


@pytest.mark.parametrize("file", PARTS)
def test_every_route_is_found_by_its_path(file: str) -> None:
    routes = import_module(f"agent_orchestrator.server.routes.{file}").router.routes
    assert routes
    assert {file_of(route.path.replace("{id}", "app-x")) for route in routes} == {file}


def test_every_word_of_the_table_is_used() -> None:
    paths = [
        route.path
        for file in PARTS
        for route in import_module(f"agent_orchestrator.server.routes.{file}").router.routes
        if isinstance(route, APIRoute)
    ]
    words = {path.removeprefix("/api").split("/")[1] for path in paths}
    assert words == {word for listed in PARTS.values() for word in listed.split()}
    behind = {path.split("/")[4] for path in paths if path.startswith("/api/sessions/{id}/")}
    assert {word for listed in OF_SESSION.values() for word in listed.split()} <= behind


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/", "/api/nothing", "/x/sessions/a/review", "/mcp", "/openapi.json"]
)
def test_nothing_is_loaded_for_what_is_not_there(path: str) -> None:
    assert file_of(path) is None


def test_only_what_is_asked_for_is_loaded() -> None:
    program = (
        "import sys\nfrom agent_orchestrator.server import routing\nrouting.load('projects')\n"
        "print(*[name for name in sys.modules if name.startswith('agent_orchestrator.server.')])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.removeprefix("agent_orchestrator.server.") for name in ran.stdout.split()}
    assert {name for name in loaded if name.startswith("routes.")} == {"routes.git", "routes.projects"}
    assert not {name for name in loaded if name.startswith("models")}, "the answers' models are for the document alone"
