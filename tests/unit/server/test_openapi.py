"""The OpenAPI document and the reference page generated from it."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

from agent_orchestrator.server.route_table import shared_routes
from agent_orchestrator.server.schema import models
from agent_orchestrator.server.schema.models.answer import Answer
from agent_orchestrator.server.schema.models.events import Event
from agent_orchestrator.server.schema.models.pull_requests import PullRequest
from agent_orchestrator.server.schema.models.sessions import Progress, Session, SessionStatus
from agent_orchestrator.server.schema.reference import markdown

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "api.md"

SESSION = """id name project task kind title status activity evidence column branch base head workspacePath agent profile runtime node pid
    exitCode issue pr progress usage attempts waitingFor createdAt updatedAt"""
PR = "number url state head checks review mergeable"
STATUS = "state status activity currentTask lastActivity branch workspacePath agent progress"


def keys(model: type[Answer]) -> list[str]:
    return list(model.model_json_schema(by_alias=True)["properties"])


def test_the_models_have_exactly_their_documented_keys() -> None:
    assert keys(Session) == SESSION.split()
    assert keys(PullRequest) == PR.split()
    assert keys(Progress) == ["done", "total", "step", "testsPassed"]
    assert keys(SessionStatus) == STATUS.split()
    assert keys(Event) == ["seq", "type", "session", "project", "source", "time", "data"]
    assert Session.model_json_schema(by_alias=True)["required"] == SESSION.split()


def test_every_module_of_models_is_listed_and_a_name_is_used_once() -> None:
    modules = {f"{models.__name__}.{module.name}" for module in pkgutil.iter_modules(models.__path__)}
    assert {module.__name__ for module in models.MODULES} == modules
    names = [
        name
        for module in models.MODULES
        for name, candidate in vars(module).items()
        if isinstance(candidate, type) and candidate.__module__ == module.__name__
    ]
    assert [name for name in names if names.count(name) > 1] == []


def test_every_operation_has_a_name_a_summary_an_answer_and_its_problems() -> None:
    document = shared_routes().openapi()
    names = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            names.append(operation["operationId"])
            assert re.fullmatch(r"[a-z][a-zA-Z]+", operation["operationId"]), where
            assert operation["summary"] and not operation["summary"].endswith("."), where
            assert "application/problem+json" in operation["responses"]["default"]["content"], where
            assert "422" not in operation["responses"], where
            assert [status for status in operation["responses"] if status.startswith("2")], where
    assert len(names) == len(set(names))
    assert document["components"]["schemas"]["Problem"]["properties"].keys() >= {"detail", "remedy", "exitCode"}


def test_every_reference_in_the_document_exists() -> None:
    document = shared_routes().openapi()
    named = set(re.findall(r"'#/components/schemas/(\w+)'", str(document)))
    assert named <= set(document["components"]["schemas"])


def test_the_reference_page_is_current() -> None:
    assert PAGE.read_text() == markdown(), (
        "run: python -m agent_orchestrator.server.schema.reference docs/reference/api.md"
    )
