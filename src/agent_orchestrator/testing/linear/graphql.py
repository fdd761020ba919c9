"""Linear's GraphQL: documents run by graphql-core on the published schema, with Linear's filters, pages and complexity."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_orchestrator.testing.forge.wire import Answer
from agent_orchestrator.testing.github.graphql.endpoint import load
from agent_orchestrator.testing.linear.state import Comment, Issue, Label, Team, User

if TYPE_CHECKING:
    from agent_orchestrator.testing.linear.server import LinearServer

MOST_COMPLEX = 10_000
_WORD = re.compile(r"(?<!^)(?=[A-Z])")


class Refused(Exception):
    """Linear says no."""

    def __init__(self, message: str, code: str = "INPUT_ERROR", shown: str = "") -> None:
        super().__init__(message)
        self.message, self.code, self.shown = message, code, shown


class GraphQL:
    def __init__(self, server: LinearServer, schema: Path | None) -> None:
        self._server, self._schema = server, schema

    def answer(self, body: bytes, viewer: User) -> tuple[Answer, int]:
        """The answer, and its complexity."""
        import graphql

        if self._schema is None:
            return Answer(501, {"errors": [{"message": "LinearServer(schema=…) needs the published schema"}]}), 0
        try:
            asked = json.loads(body)
            document = graphql.parse(asked["query"])
        except (ValueError, KeyError, TypeError, graphql.GraphQLError) as error:
            return Answer(400, {"errors": [_error(str(error), "GRAPHQL_VALIDATION_FAILED")]}), 0
        schema = load(self._schema)
        if wrong := graphql.validate(schema, document):
            told = [_error(one.message, "GRAPHQL_VALIDATION_FAILED") for one in wrong]
            return Answer(400, {"errors": told}), 0
        cost = complexity(document)
        if cost > MOST_COMPLEX:
            return Answer(400, {"errors": [_error("Query too complex", "INPUT_ERROR")]}), cost
        done = graphql.execute_sync(
            schema,
            document,
            variable_values=asked.get("variables") or {},
            context_value=Context(self._server, viewer),
            field_resolver=_resolve,
        )
        result: dict[str, Any] = {"data": done.data}
        for wrong_at in done.errors or []:
            original = wrong_at.original_error
            if isinstance(original, Refused):
                result.setdefault("errors", []).append(
                    {**_error(original.message, original.code, original.shown), "path": wrong_at.path}
                )
            else:
                if original is not None:
                    self._server.errors.append(original)
                result.setdefault("errors", []).append(_error(wrong_at.message, "GRAPHQL_VALIDATION_FAILED"))
        return Answer(400 if done.data is None and done.errors else 200, result), cost


class Context:
    """Who asks."""

    def __init__(self, server: LinearServer, viewer: User) -> None:
        self.server, self.viewer = server, viewer


def _error(message: str, code: str, shown: str = "") -> dict[str, Any]:
    more = {"code": code, "type": "invalid input", "userPresentableMessage": shown or message}
    return {"message": message, "extensions": more}


def complexity(document: Any) -> int:
    """As Linear counts: a tenth for each value, one for each object, and all that is in a list as often as it may be there."""
    import graphql

    fragments = {one.name.value: one for one in document.definitions if isinstance(one, graphql.FragmentDefinitionNode)}

    def cost(selections: Any, times: float) -> float:
        return sum(_of(one, times) for one in selections)

    def _of(one: Any, times: float) -> float:
        if one.kind == "fragment_spread":
            return cost(fragments[one.name.value].selection_set.selections, times)
        if one.selection_set is None:
            return 0.1 * times
        inner = cost(one.selection_set.selections, times * (_size(one, fragments) if one.kind == "field" else 1))
        return inner + (times if one.kind == "field" else 0.0)

    whole = sum(
        cost(one.selection_set.selections, 1.0)
        for one in document.definitions
        if isinstance(one, graphql.OperationDefinitionNode)
    )
    return math.ceil(whole)


def _size(field: Any, fragments: Any) -> int:
    """How often what is asked of this field may be there."""
    inner = field.selection_set.selections
    listed = any(one.kind == "field" and one.name.value == "nodes" for one in inner)
    spread = [fragments[one.name.value] for one in inner if one.kind == "fragment_spread"]
    if not listed and not any(one.type_condition.name.value.endswith("Connection") for one in spread):
        return 1
    return next((int(one.value.value) for one in field.arguments if one.name.value == "first"), 50)


def _resolve(source: Any, info: Any, **args: Any) -> Any:
    kind, name = info.parent_type.name, info.field_name
    served = FIELDS.get((kind, name))
    if served is not None:
        return served(source, info.context, args)
    if isinstance(source, dict) and name in source:
        return source[name]
    attribute = _WORD.sub("_", name).lower()
    if not isinstance(source, dict) and source is not None and hasattr(source, attribute):
        return getattr(source, attribute)
    raise Refused(f"the test server does not serve {kind}.{name}", "NOT_SERVED")


def connection(items: list[Any], args: dict[str, Any]) -> dict[str, Any]:
    """A page, newest first as everywhere at Linear."""
    by = "updated_at" if args.get("orderBy") == "updatedAt" else "created_at"
    if items and hasattr(items[0], by):
        items = [one for _, one in sorted(enumerate(items), key=lambda pair: (getattr(pair[1], by), pair[0]))][::-1]
    size = 50 if args.get("first") is None else args["first"]
    if not 0 < size <= 250:
        raise Refused("first must be between 1 and 250")
    start = 0
    if after := args.get("after"):
        start = next((place + 1 for place, one in enumerate(items) if one.id == after), -1)
        if start < 0:
            raise Refused("the cursor is not valid")
    page = items[start : start + size]
    more = start + size < len(items)
    return {"nodes": page, "pageInfo": {"hasNextPage": more, "endCursor": page[-1].id if page else None}}


def matches(thing: Any, wanted: dict[str, Any], viewer: User) -> bool:
    """Does a filter let this pass?"""
    for field, how in wanted.items():
        if field == "and":
            good = all(matches(thing, one, viewer) for one in how)
        elif field == "or":
            good = any(matches(thing, one, viewer) for one in how)
        elif field == "null":
            good = (thing is None) == how
        elif thing is None:
            good = False
        elif field == "isMe":
            good = (thing is viewer) == how["eq"]
        elif field == "some":
            good = any(matches(one, how, viewer) for one in thing)
        else:
            value = getattr(thing, _WORD.sub("_", field).lower())
            compares = set(how) & {*_COMPARE} and not (value is None or hasattr(value, "id") or isinstance(value, list))
            good = all(_COMPARE[one](value, to) for one, to in how.items()) if compares else matches(value, how, viewer)
        if not good:
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


def _issue(context: Context, name: str) -> Issue:
    for team in context.server.teams:
        for issue in team.issues:
            if name == issue.id or name.upper() in (issue.identifier, *issue.former):
                return issue
    raise _absent("Issue")


def _absent(what: str) -> Refused:
    return Refused(f"Entity not found: {what}", shown=f"Could not find referenced {what}.")


def _comment(_: Any, context: Context, args: dict[str, Any]) -> Comment:
    found = context.server.said.get(args.get("id") or "")
    if found is None:
        raise _absent("Comment")
    return found


def _filtered(items: list[Any], context: Context, args: dict[str, Any]) -> dict[str, Any]:
    return connection([one for one in items if matches(one, args.get("filter") or {}, context.viewer)], args)


def _all_issues(context: Context) -> list[Issue]:
    return [issue for team in context.server.teams for issue in team.issues]


def _create(_: Any, context: Context, args: dict[str, Any]) -> dict[str, Any]:
    given = args["input"]
    team = next((team for team in context.server.teams if team.id == given["teamId"]), None)
    if team is None:
        raise _absent("Team")
    if not str(given.get("title") or "").strip():
        raise Refused("title should not be empty")
    labels = [_label(context, one) for one in given.get("labelIds") or []]
    issue = context.server.issue(team, given["title"], given.get("description") or "", by=context.viewer, labels=labels)
    return {"success": True, "issue": issue, "lastSyncId": 1.0}


def _label(context: Context, number: str) -> Label:
    found = next((one for one in context.server.labels if one.id == number), None)
    if found is None:
        raise _absent("IssueLabel")
    return found


def _update(_: Any, context: Context, args: dict[str, Any]) -> dict[str, Any]:
    issue, given, before = _issue(context, args["id"]), args["input"], {}
    for name, value in given.items():
        if name in ("title", "description"):
            before[name] = getattr(issue, name)
            setattr(issue, name, value)
        elif name == "stateId":
            state = next((one for one in issue.team.states if one.id == value), None)
            if state is None:
                raise _absent("WorkflowState")
            before["stateId"], issue.state = issue.state.id, state
        elif name == "assigneeId":
            person = next((one for one in context.server.users.values() if one.id == value), None)
            if value is not None and (person is None or person.guest):
                raise _absent("User")
            before["assigneeId"], issue.assignee = issue.assignee.id if issue.assignee else None, person
        elif name in ("addedLabelIds", "removedLabelIds"):
            before["labelIds"] = [one.id for one in issue.labels]
            changed = [_label(context, one) for one in value]
            kept = [one for one in issue.labels if one not in changed]
            issue.labels = kept + changed if name.startswith("added") else kept
        else:
            raise Refused(f"the test server does not update {name}", "NOT_SERVED")
    context.server.touched(issue, context.viewer, "update", before)
    return {"success": True, "issue": issue, "lastSyncId": 1.0}


def _say(_: Any, context: Context, args: dict[str, Any]) -> dict[str, Any]:
    given = args["input"]
    if not str(given.get("body") or "").strip():
        raise Refused("body should not be empty")
    number = given.get("id")
    if number is not None and not re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", number
    ):
        raise Refused("id must be a UUID")
    if number in context.server.said:
        raise Refused(f"Entity Comment with id {number} already exists")
    comment = context.server.comment(_issue(context, given["issueId"]), given["body"], by=context.viewer, number=number)
    return {"success": True, "comment": comment, "lastSyncId": 1.0}


def _new_label(_: Any, context: Context, args: dict[str, Any]) -> dict[str, Any]:
    given = args["input"]
    team: Team | None = next((one for one in context.server.teams if one.id == given.get("teamId")), None)
    same = [one for one in context.server.labels if one.name.lower() == given["name"].lower()]
    if any(one.team in (None, team) for one in same):
        raise Refused("duplicate label name")
    return {"success": True, "issueLabel": context.server.label(given["name"], team), "lastSyncId": 1.0}


Served = Callable[[Any, Context, dict[str, Any]], Any]
FIELDS: dict[tuple[str, str], Served] = {
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
    ("Mutation", "issueCreate"): _create,
    ("Mutation", "issueUpdate"): _update,
    ("Mutation", "commentCreate"): _say,
    ("Mutation", "issueLabelCreate"): _new_label,
}
