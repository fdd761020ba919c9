"""GraphQL: documents run by graphql-core on the published schema and the forge's state, with GitHub's documented cost."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

from agent_orchestrator.testing.forge.http import ForgeAnswer
from agent_orchestrator.testing.forge.ledger import OrderedFault
from agent_orchestrator.testing.github.graphql.base import GitHubQueryContext
from agent_orchestrator.testing.github.graphql.cost import cost_of
from agent_orchestrator.testing.github.graphql.fields import FIELDS, TYPES
from agent_orchestrator.testing.github.graphql.mutations import MUTATIONS
from agent_orchestrator.testing.github.shapes import Json
from agent_orchestrator.testing.github.shapes_ci import CiShapes
from agent_orchestrator.testing.github.state import GitHubRateLimit, GitHubToken, GitHubUser
from agent_orchestrator.testing.github.world import GitHubRefused, GitHubWorld

_WORD = re.compile(r"(?<!^)(?=[A-Z])")


class GitHubGraphQL:
    """The endpoint. Without the published schema it answers with an error; the rest of the forge works."""

    def __init__(self, world: GitHubWorld, schema: Path | None) -> None:
        self._world, self._schema = world, schema

    def answer(
        self, body: bytes, token: GitHubToken | None, show: CiShapes, fault: OrderedFault | None
    ) -> tuple[ForgeAnswer, int]:
        """Return the answer and its cost in points."""
        assert token is not None
        if self._schema is None:
            text = (
                "GraphQL needs the published schema: give GitHubServer(schema=…), or fetch it with `make test-forges`"
            )
            return ForgeAnswer(501, {"message": text}), 0
        try:
            request = json.loads(body)
            text = request["query"]
        except (ValueError, KeyError, TypeError):
            return ForgeAnswer(400, {"message": "Problems parsing JSON"}), 0
        return self._run(text, request.get("variables") or {}, request.get("operationName"), token, show, fault)

    def _run(
        self,
        text: str,
        variables: Json,
        name: str | None,
        token: GitHubToken,
        show: CiShapes,
        fault: OrderedFault | None,
    ) -> tuple[ForgeAnswer, int]:
        import graphql

        assert self._schema is not None
        schema = load_schema(self._schema)
        try:
            document = graphql.parse(text)
        except graphql.GraphQLError as error:
            return ForgeAnswer(200, {"errors": [_error(error)]}), 1
        rules = [rule for rule in graphql.specified_rules if rule is not graphql.OverlappingFieldsCanBeMergedRule]
        problems = graphql.validate(schema, document, rules)  # GitHub allows `state` on both issues and pull requests
        if problems:
            return ForgeAnswer(200, {"errors": [_error(error) for error in problems]}), 1
        points, nodes = cost_of(document, variables, name)
        if nodes > 500_000:
            message = f"This query requests up to {nodes:,} possible nodes which exceeds the maximum limit of 500,000."
            return ForgeAnswer(200, {"errors": [{"type": "MAX_NODE_LIMIT_EXCEEDED", "message": message}]}), 1
        limit = token.limits.get("graphql") or GitHubRateLimit(reset=self._world.clock() + 3600)
        context = GitHubQueryContext(self._world, show, token.user, points, nodes, limit)
        if fault and fault.failure == "partial":
            context.broken = fault.field_name
        execution = graphql.execute_sync(
            schema, document, variable_values=variables, operation_name=name, context_value=context, field_resolver=_resolve,
            type_resolver=lambda value, *_: typename(value),
        )  # fmt: skip
        result: Json = {"data": execution.data}
        if execution.errors:
            causes = (error.original_error for error in execution.errors)
            self._world.errors += [
                error_cause
                for error_cause in causes
                if error_cause is not None and not isinstance(error_cause, (GitHubRefused, graphql.GraphQLError))
            ]
            result["errors"] = [_error(error) for error in execution.errors]
        return ForgeAnswer(200, result), points


@functools.cache
def load_schema(path: Path) -> Any:
    """Return the published schema without descriptions, which are most of its text."""
    import graphql

    text = re.sub(r'"""(?:[^"\\]|\\.|"(?!""))*"""', "", path.read_text())
    return graphql.build_schema(text, assume_valid=True, assume_valid_sdl=True, no_location=True)


def typename(value: Any) -> str:
    if isinstance(value, dict):
        return str(value["__typename"])
    return value.kind if isinstance(value, GitHubUser) else TYPES[type(value)]


def _resolve(source: Any, info: Any, **args: Any) -> Any:
    context: GitHubQueryContext = info.context
    kind, name = info.parent_type.name, info.field_name
    if context.broken == name:
        raise GitHubRefused(500, "Something went wrong while executing your query.", kind="SERVICE_UNAVAILABLE")
    if kind == "Mutation":
        if name not in MUTATIONS:
            raise GitHubRefused(501, f"the test server has no mutation {name}", kind="NOT_SERVED")
        arguments = args["input"]
        return {**MUTATIONS[name](context, arguments), "clientMutationId": arguments.get("clientMutationId")}
    resolver = FIELDS.get(kind, {}).get(name) or (FIELDS["*"].get(name) if not isinstance(source, dict) else None)
    if resolver is not None:
        return resolver(*(source, context, args)[: resolver.__code__.co_argcount])
    if isinstance(source, dict) and name in source:
        return source[name]
    attribute = _WORD.sub("_", name).lower()
    if not isinstance(source, dict) and hasattr(source, attribute):
        return getattr(source, attribute)
    raise GitHubRefused(501, f"the test server does not serve {kind}.{name}", kind="NOT_SERVED")


def _error(error: Any) -> Json:
    shape: Json = {"message": error.message}
    original = getattr(error, "original_error", None)
    if isinstance(original, GitHubRefused):
        detail = original.errors[0] if original.errors else None
        if isinstance(detail, dict) and detail.get("message"):
            shape["message"] = detail["message"]
        shape["type"] = original.kind
    if error.path:
        shape["path"] = error.path
    if error.locations:
        shape["locations"] = [{"line": location.line, "column": location.column} for location in error.locations]
    return shape
