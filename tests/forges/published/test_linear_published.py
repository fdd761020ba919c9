"""Our queries and the test server's webhooks compared with the types of Linear's SDK."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.plugins.forges.linear import graphql_documents
from agent_orchestrator.testing.linear import LinearServer
from agent_orchestrator.testing.linear.graphql import MAX_COMPLEXITY, complexity
from tests.forges import fetch
from tests.forges.conftest import published
from tests.forges.published.linear_types import sdl, write_schema

graphql = pytest.importorskip("graphql", reason="graphql-core is not installed: make test-forges")


@pytest.fixture(scope="session")
def linear_schema() -> Path:
    return write_schema(published(fetch.LINEAR))


@pytest.fixture(scope="session")
def schema(linear_schema: Path) -> Any:
    return graphql.build_schema(linear_schema.read_text(), assume_valid_sdl=True)


def test_the_converted_schema_is_complete(schema: Any) -> None:
    assert graphql.validate_schema(schema) == []
    assert {"Issue", "Comment", "Team", "WorkflowState", "IssueFilter"} <= set(schema.type_map)
    assert len(schema.type_map) > 1000
    assert {"first", "after", "filter", "orderBy"} <= set(schema.type_map["Query"].fields["issues"].args)


@pytest.mark.parametrize("name", graphql_documents.DOCUMENTS)
def test_every_query_is_valid(schema: Any, name: str) -> None:
    document = graphql.parse(graphql_documents.DOCUMENTS[name])
    assert [error.message for error in graphql.validate(schema, document)] == []
    assert complexity(document) < MAX_COMPLEXITY


def test_all_queries_are_listed() -> None:
    texts = [
        value
        for name, value in vars(graphql_documents).items()
        if isinstance(value, str) and re.match(r"\s*(query|mutation) ", value) and name.isupper()
    ]
    assert sorted(texts) == sorted(graphql_documents.DOCUMENTS.values())


def test_a_wrong_query_fails_validation(schema: Any) -> None:
    wrong = graphql.parse("query { issues(frst: 1) { nodes { identifer } } }")
    assert len(graphql.validate(schema, wrong)) == 2


def test_nullable_and_required_types_are_converted_differently() -> None:
    text = sdl(
        "type Scalars = {\n  ID: string;\n  DateTime: Date;\n};\n"
        'type Thing = Node & {\n  __typename?: "Thing";\n  id: Scalars["ID"];\n  at?: Maybe<Scalars["DateTime"]>;\n'
        "  all: Array<Thing>;\n  some?: Maybe<Array<Maybe<Thing>>>;\n};\n"
        'type Node = {\n  id: Scalars["ID"];\n};\n'
        'type ThingAllArgs = {\n  first?: InputMaybe<Scalars["Int"]>;\n};\n'
        'type ThingInput = {\n  id: Scalars["ID"];\n};\n'
        'declare enum Kind {\n  One = "one",\n}\n'
    )
    assert (
        "type Thing implements Node {\n  id: ID!\n  at: DateTime\n  all(first: Int): [Thing!]!\n  some: [Thing]\n}"
        in text
    )
    assert "interface Node {\n  id: ID!\n}" in text
    assert "input ThingInput {\n  id: ID!\n}" in text
    assert "scalar DateTime" in text
    assert "enum Kind { one }" in text
    assert "ThingAllArgs" not in text


@pytest.fixture
def linear(linear_schema: Path) -> Iterator[LinearServer]:
    with LinearServer(schema=linear_schema) as server:
        server.hook("http://127.0.0.1:9/", "s")
        yield server


def test_webhooks_match_the_published_types(schema: Any, linear: LinearServer) -> None:
    team = linear.team("LIN")
    issue = linear.issue(team, "x", "y", labels=("bug",), assignee="dev")
    linear.comment(issue, "hello", by="rev")
    linear.move(issue, "Done")
    kinds = {
        "Issue": "IssueWebhookPayload",
        "Comment": "CommentWebhookPayload",
        "IssueLabel": "IssueLabelWebhookPayload",
    }
    assert {sent.event for sent in linear.hooks.sent} == set(kinds)
    for sent in linear.hooks.sent:
        envelope = {name: value for name, value in sent.payload.items() if name not in ("data", "actor")}
        missing = {"data"} if "data" in sent.payload else set()
        assert problems(schema, "EntityWebhookPayload", envelope, missing | {"actor"}) == []
        assert problems(schema, kinds[sent.event], sent.payload["data"]) == []
        if "actor" in sent.payload:
            assert problems(schema, "UserActorWebhookPayload", sent.payload["actor"]) == []


def problems(schema: Any, kind: str, value: Mapping[str, Any], without: set[str] | None = None) -> list[str]:
    """Return the unknown fields of an object of a type, and the required ones that it lacks."""
    fields = schema.type_map[kind].fields
    errors = [f"{kind} has no {name}" for name in value if name not in fields]
    for name, field in fields.items():
        if graphql.is_non_null_type(field.type) and value.get(name) is None and name not in (without or set()):
            errors.append(f"{kind} needs {name}")
        inner = graphql.get_named_type(field.type)
        if graphql.is_object_type(inner):
            for item in value[name] if isinstance(value.get(name), list) else [value.get(name)]:
                errors += problems(schema, inner.name, item) if isinstance(item, Mapping) else []
    return errors
