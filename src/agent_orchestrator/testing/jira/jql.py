"""A part of JQL: issues by project, labels, status category, assignee and time; anything else is refused, as by Jira."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_orchestrator.testing.jira.state import CATEGORIES, JiraIssue, JiraUser

_CLAUSE = re.compile(
    r"\s*(?P<field>\w+)\s*(?P<op>!=|>=|=|is\s+empty)\s*(?P<value>\"(?:[^\"\\]|\\.)*\"|currentUser\(\)|-\d+m|\w+)?\s*",
    re.IGNORECASE,
)


class InvalidQuery(Exception):
    """The query is not valid, or not supported here."""


def find_issues(jql: str, issues: Sequence[JiraIssue], me: JiraUser, now: float) -> list[JiraIssue]:
    """Return the matching issues in order; raise `InvalidQuery`."""
    text, _, order = (part.strip() for part in re.sub(r"\s+", " ", jql).partition(" ORDER BY "))
    if not text:
        raise InvalidQuery("Unbounded JQL queries are not allowed here. Please add a search restriction to your query.")
    matching = list(issues)
    position = 0
    while position < len(text):
        clause = _CLAUSE.match(text, position)
        if clause is None:
            raise InvalidQuery(f"Error in the JQL Query at position {position}: {text[position : position + 30]!r}")
        position = clause.end()
        if position < len(text):
            if text[position : position + 4] != "AND ":
                raise InvalidQuery(
                    f"Error in the JQL Query: Expecting 'AND' but got {text[position : position + 10]!r}"
                )
            position += 4
        matching = [issue for issue in matching if _matches(issue, clause, me, now)]
    for part in reversed(order.split(",") if order else []):
        name, _, direction = part.strip().partition(" ")
        if name not in ("created", "key", "updated"):
            raise InvalidQuery(f"Field '{name}' does not exist or you do not have permission to view it.")
        matching.sort(key=lambda issue: _order(issue, name), reverse=direction.upper() == "DESC")
    return matching


def _order(issue: JiraIssue, name: str) -> float:
    return issue.number if name == "key" else issue.created if name == "created" else issue.updated


def _matches(issue: JiraIssue, clause: re.Match[str], me: JiraUser, now: float) -> bool:
    field, op, operand = clause["field"].lower(), clause["op"].lower(), clause["value"] or ""
    value = re.sub(r"\\(.)", r"\1", operand[1:-1]) if operand.startswith('"') else operand
    if field == "project" and op == "=":
        return issue.project.key.lower() == value.lower()
    if field == "labels" and op == "=":
        return value.lower() in [label.lower() for label in issue.labels]
    if field == "statuscategory" and op in ("=", "!="):
        names = {CATEGORIES[key][1].lower(): key for key in CATEGORIES}
        if value.lower() not in names:
            raise InvalidQuery(f"The value '{value}' does not exist for the field 'statusCategory'.")
        return (issue.status.category == names[value.lower()]) == (op == "=")
    if field == "assignee" and op.startswith("is"):
        return issue.assignee is None
    if field == "assignee" and op == "=":
        account = me.account if value == "currentUser()" else value
        return issue.assignee is not None and account in (issue.assignee.account, issue.assignee.name)
    if field == "updated" and op == ">=" and re.fullmatch(r"-\d+m", value):
        return issue.updated >= now - 60 * int(value[1:-1])
    raise InvalidQuery(f"Field '{clause['field']}' does not exist or the operator '{op}' is not known for it.")
