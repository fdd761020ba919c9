"""Linear's GraphQL: documents run by graphql-core on the published schema, with Linear's filters, pages and complexity."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_orchestrator.testing.forge.http import ForgeAnswer
from agent_orchestrator.testing.github.graphql.endpoint import load_schema
from agent_orchestrator.testing.linear.state import (
    LinearComment,
    LinearIssue,
    LinearLabel,
    LinearTeamRecord,
    LinearUser,
)

if TYPE_CHECKING:
    from agent_orchestrator.testing.linear.server import LinearServer

MAX_COMPLEXITY = 10_000
_WORD = re.compile(r"(?<!^)(?=[A-Z])")


class LinearRefused(Exception):
    """Linear refuses a request."""

    def __init__(self, message: str, code: str = "INPUT_ERROR", user_message: str = "") -> None:
        super().__init__(message)
        self.message, self.code, self.user_message = message, code, user_message


class LinearGraphQL:
    def __init__(self, server: LinearServer, schema: Path | None) -> None:
        self._server, self._schema = server, schema

    def answer(self, body: bytes, viewer: LinearUser) -> tuple[ForgeAnswer, int]:
        """Return the answer and its complexity."""
        import graphql

        if self._schema is None:
            return ForgeAnswer(501, {"errors": [{"message": "LinearServer(schema=…) needs the published schema"}]}), 0
        try:
            request = json.loads(body)
            document = graphql.parse(request["query"])
        except (ValueError, KeyError, TypeError, graphql.GraphQLError) as error:
            return ForgeAnswer(400, {"errors": [_error(str(error), "GRAPHQL_VALIDATION_FAILED")]}), 0
        schema = load_schema(self._schema)
        if problems := graphql.validate(schema, document):
            errors = [_error(problem.message, "GRAPHQL_VALIDATION_FAILED") for problem in problems]
            return ForgeAnswer(400, {"errors": errors}), 0
        cost = complexity(document)
        if cost > MAX_COMPLEXITY:
            return ForgeAnswer(400, {"errors": [_error("Query too complex", "INPUT_ERROR")]}), cost
        execution = graphql.execute_sync(
            schema,
            document,
            variable_values=request.get("variables") or {},
            context_value=LinearQueryContext(self._server, viewer),
            field_resolver=_resolve,
        )
        result: dict[str, Any] = {"data": execution.data}
        for error_at in execution.errors or []:
            original = error_at.original_error
            if isinstance(original, LinearRefused):
                result.setdefault("errors", []).append(
                    {**_error(original.message, original.code, original.user_message), "path": error_at.path}
                )
            else:
                if original is not None:
                    self._server.errors.append(original)
                result.setdefault("errors", []).append(_error(error_at.message, "GRAPHQL_VALIDATION_FAILED"))
        return ForgeAnswer(400 if execution.data is None and execution.errors else 200, result), cost


class LinearQueryContext:
    """The viewer of a query."""

    def __init__(self, server: LinearServer, viewer: LinearUser) -> None:
        self.server, self.viewer = server, viewer


def _error(message: str, code: str, user_message: str = "") -> dict[str, Any]:
    more = {"code": code, "type": "invalid input", "userPresentableMessage": user_message or message}
    return {"message": message, "extensions": more}


def complexity(document: Any) -> int:
    """Return a document's complexity as Linear counts it: 0.1 per value, 1 per object, multiplied by the maximum length of lists."""
    import graphql

    fragments = {
        node.name.value: node for node in document.definitions if isinstance(node, graphql.FragmentDefinitionNode)
    }

    def cost(selections: Any, times: float) -> float:
        return sum(node_cost(node, times) for node in selections)

    def node_cost(node: Any, times: float) -> float:
        if node.kind == "fragment_spread":
            return cost(fragments[node.name.value].selection_set.selections, times)
        if node.selection_set is None:
            return 0.1 * times
        inner = cost(
            node.selection_set.selections, times * (_max_items(node, fragments) if node.kind == "field" else 1)
        )
        return inner + (times if node.kind == "field" else 0.0)

    total = sum(
        cost(node.selection_set.selections, 1.0)
        for node in document.definitions
        if isinstance(node, graphql.OperationDefinitionNode)
    )
    return math.ceil(total)


def _max_items(field: Any, fragments: Any) -> int:
    """Return the maximum number of items of a field."""
    inner = field.selection_set.selections
    listed = any(node.kind == "field" and node.name.value == "nodes" for node in inner)
    spread = [fragments[node.name.value] for node in inner if node.kind == "fragment_spread"]
    if not listed and not any(node.type_condition.name.value.endswith("Connection") for node in spread):
        return 1
    return next((int(node.value.value) for node in field.arguments if node.name.value == "first"), 50)


def _resolve(source: Any, info: Any, **args: Any) -> Any:
    kind, name = info.parent_type.name, info.field_name
    resolver = FIELDS.get((kind, name))
    if resolver is not None:
        return resolver(source, info.context, args)
    if isinstance(source, dict) and name in source:
        return source[name]
    attribute = _WORD.sub("_", name).lower()
    if not isinstance(source, dict) and source is not None and hasattr(source, attribute):
        return getattr(source, attribute)
    raise LinearRefused(f"the test server does not serve {kind}.{name}", "NOT_SERVED")


def connection(items: list[Any], args: dict[str, Any]) -> dict[str, Any]:
    """Return a page of items, newest first as everywhere at Linear."""
    time_field = "updated_at" if args.get("orderBy") == "updatedAt" else "created_at"
    if items and hasattr(items[0], time_field):
        items = [
            item for _, item in sorted(enumerate(items), key=lambda pair: (getattr(pair[1], time_field), pair[0]))
        ][::-1]
    size = 50 if args.get("first") is None else args["first"]
    if not 0 < size <= 250:
        raise LinearRefused("first must be between 1 and 250")
    start = 0
    if after := args.get("after"):
        start = next((position + 1 for position, item in enumerate(items) if item.id == after), -1)
        if start < 0:
            raise LinearRefused("the cursor is not valid")
    page = items[start : start + size]
    has_more = start + size < len(items)
    return {"nodes": page, "pageInfo": {"hasNextPage": has_more, "endCursor": page[-1].id if page else None}}


def matches(value: Any, conditions: dict[str, Any], viewer: LinearUser) -> bool:
    """Return whether a value matches a filter."""
    for field, condition in conditions.items():
        if field == "and":
            is_match = all(matches(value, each, viewer) for each in condition)
        elif field == "or":
            is_match = any(matches(value, each, viewer) for each in condition)
        elif field == "null":
            is_match = (value is None) == condition
        elif value is None:
            is_match = False
        elif field == "isMe":
            is_match = (value is viewer) == condition["eq"]
        elif field == "some":
            is_match = any(matches(each, condition, viewer) for each in value)
        else:
            field_value = getattr(value, _WORD.sub("_", field).lower())
            compares = set(condition) & {*_COMPARE} and not (
                field_value is None or hasattr(field_value, "id") or isinstance(field_value, list)
            )
            is_match = (
                all(_COMPARE[each](field_value, to) for each, to in condition.items())
                if compares
                else matches(field_value, condition, viewer)
            )
        if not is_match:
            return False
    return True


def _at(text: Any) -> datetime:
    return datetime.fromisoformat(str(text))


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda value, to: bool(value == to),
    "neq": lambda value, to: bool(value != to),
    "in": lambda value, to: value in to,
    "nin": lambda value, to: value not in to,
    "eqIgnoreCase": lambda value, to: str(value).lower() == str(to).lower(),
    "gte": lambda value, to: _at(value) >= _at(to),
    "gt": lambda value, to: _at(value) > _at(to),
}


def _issue(context: LinearQueryContext, name: str) -> LinearIssue:
    for team in context.server.teams:
        for issue in team.issues:
            if name == issue.id or name.upper() in (issue.identifier, *issue.former_identifiers):
                return issue
    raise _not_found("Issue")


def _not_found(what: str) -> LinearRefused:
    return LinearRefused(f"Entity not found: {what}", user_message=f"Could not find referenced {what}.")


def _comment(_: Any, context: LinearQueryContext, args: dict[str, Any]) -> LinearComment:
    comment = context.server.comments_by_id.get(args.get("id") or "")
    if comment is None:
        raise _not_found("Comment")
    return comment


def _filtered(items: list[Any], context: LinearQueryContext, args: dict[str, Any]) -> dict[str, Any]:
    return connection([item for item in items if matches(item, args.get("filter") or {}, context.viewer)], args)


def _all_issues(context: LinearQueryContext) -> list[LinearIssue]:
    return [issue for team in context.server.teams for issue in team.issues]


def _create_issue(_: Any, context: LinearQueryContext, args: dict[str, Any]) -> dict[str, Any]:
    arguments = args["input"]
    team = next((team for team in context.server.teams if team.id == arguments["teamId"]), None)
    if team is None:
        raise _not_found("Team")
    if not str(arguments.get("title") or "").strip():
        raise LinearRefused("title should not be empty")
    labels = [_label(context, label_id) for label_id in arguments.get("labelIds") or []]
    issue = context.server.issue(
        team, arguments["title"], arguments.get("description") or "", by=context.viewer, labels=labels
    )
    return {"success": True, "issue": issue, "lastSyncId": 1.0}


def _label(context: LinearQueryContext, number: str) -> LinearLabel:
    label = next((candidate for candidate in context.server.labels if candidate.id == number), None)
    if label is None:
        raise _not_found("IssueLabel")
    return label


def _update_issue(_: Any, context: LinearQueryContext, args: dict[str, Any]) -> dict[str, Any]:
    issue, arguments, before = _issue(context, args["id"]), args["input"], {}
    for name, value in arguments.items():
        if name in ("title", "description"):
            before[name] = getattr(issue, name)
            setattr(issue, name, value)
        elif name == "stateId":
            state = next((candidate for candidate in issue.team.states if candidate.id == value), None)
            if state is None:
                raise _not_found("WorkflowState")
            before["stateId"], issue.state = issue.state.id, state
        elif name == "assigneeId":
            person = next((candidate for candidate in context.server.users.values() if candidate.id == value), None)
            if value is not None and (person is None or person.guest):
                raise _not_found("User")
            before["assigneeId"], issue.assignee = issue.assignee.id if issue.assignee else None, person
        elif name in ("addedLabelIds", "removedLabelIds"):
            before["labelIds"] = [candidate.id for candidate in issue.labels]
            changed = [_label(context, candidate) for candidate in value]
            kept = [candidate for candidate in issue.labels if candidate not in changed]
            issue.labels = kept + changed if name.startswith("added") else kept
        else:
            raise LinearRefused(f"the test server does not update {name}", "NOT_SERVED")
    context.server.mark_updated(issue, context.viewer, "update", before)
    return {"success": True, "issue": issue, "lastSyncId": 1.0}


def _create_comment(_: Any, context: LinearQueryContext, args: dict[str, Any]) -> dict[str, Any]:
    arguments = args["input"]
    if not str(arguments.get("body") or "").strip():
        raise LinearRefused("body should not be empty")
    number = arguments.get("id")
    if number is not None and not re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", number
    ):
        raise LinearRefused("id must be a UUID")
    if number in context.server.comments_by_id:
        raise LinearRefused(f"Entity Comment with id {number} already exists")
    comment = context.server.comment(
        _issue(context, arguments["issueId"]), arguments["body"], by=context.viewer, number=number
    )
    return {"success": True, "comment": comment, "lastSyncId": 1.0}


def _create_label(_: Any, context: LinearQueryContext, args: dict[str, Any]) -> dict[str, Any]:
    arguments = args["input"]
    team: LinearTeamRecord | None = next(
        (candidate for candidate in context.server.teams if candidate.id == arguments.get("teamId")), None
    )
    namesakes = [
        candidate for candidate in context.server.labels if candidate.name.lower() == arguments["name"].lower()
    ]
    if any(candidate.team in (None, team) for candidate in namesakes):
        raise LinearRefused("duplicate label name")
    return {"success": True, "issueLabel": context.server.label(arguments["name"], team), "lastSyncId": 1.0}


FieldResolver = Callable[[Any, LinearQueryContext, dict[str, Any]], Any]
FIELDS: dict[tuple[str, str], FieldResolver] = {
    ("Query", "viewer"): lambda _, context, __: context.viewer,
    ("Query", "issue"): lambda _, context, args: _issue(context, args["id"]),
    ("Query", "issues"): lambda _, context, args: _filtered(_all_issues(context), context, args),
    ("Query", "teams"): lambda _, context, args: _filtered(context.server.teams, context, args),
    ("Query", "issueLabels"): lambda _, context, args: _filtered(context.server.labels, context, args),
    ("Query", "users"): lambda _, context, args: _filtered(list(context.server.users.values()), context, args),
    ("Query", "comment"): _comment,
    ("Issue", "labels"): lambda issue, _, args: connection(issue.labels, args),
    ("Issue", "comments"): lambda issue, _, args: connection(issue.comments, args),
    ("Issue", "attachments"): lambda issue, _, args: connection(issue.attachments, args),
    ("Team", "states"): lambda team, _, args: connection(team.states, args),
    ("Mutation", "issueCreate"): _create_issue,
    ("Mutation", "issueUpdate"): _update_issue,
    ("Mutation", "commentCreate"): _create_comment,
    ("Mutation", "issueLabelCreate"): _create_label,
}
