"""The part of JQL that finds issues by project, labels, status category, assignee and time; anything else is refused, as Jira does."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_orchestrator.testing.jira.state import CATEGORIES, Issue, User

_CLAUSE = re.compile(
    r"\s*(?P<field>\w+)\s*(?P<op>!=|>=|=|is\s+empty)\s*(?P<value>\"(?:[^\"\\]|\\.)*\"|currentUser\(\)|-\d+m|\w+)?\s*",
    re.IGNORECASE,
)


class Wrong(Exception):
    """This is no JQL that is known here."""


def find(jql: str, issues: Sequence[Issue], me: User, now: float) -> list[Issue]:
    """The issues that fit, in order."""
    text, _, order = (part.strip() for part in re.sub(r"\s+", " ", jql).partition(" ORDER BY "))
    if not text:
        raise Wrong("Unbounded JQL queries are not allowed here. Please add a search restriction to your query.")
    found = list(issues)
    at = 0
    while at < len(text):
        clause = _CLAUSE.match(text, at)
        if clause is None:
            raise Wrong(f"Error in the JQL Query at position {at}: {text[at : at + 30]!r}")
        at = clause.end()
        if at < len(text):
            if text[at : at + 4] != "AND ":
                raise Wrong(f"Error in the JQL Query: Expecting 'AND' but got {text[at : at + 10]!r}")
            at += 4
        found = [one for one in found if _fits(one, clause, me, now)]
    for part in reversed(order.split(",") if order else []):
        name, _, way = part.strip().partition(" ")
        if name not in ("created", "key", "updated"):
            raise Wrong(f"Field '{name}' does not exist or you do not have permission to view it.")
        found.sort(key=lambda one: _order(one, name), reverse=way.upper() == "DESC")
    return found


def _order(issue: Issue, name: str) -> float:
    return issue.number if name == "key" else issue.created if name == "created" else issue.updated


def _fits(issue: Issue, clause: re.Match[str], me: User, now: float) -> bool:
    field, op, given = clause["field"].lower(), clause["op"].lower(), clause["value"] or ""
    value = re.sub(r"\\(.)", r"\1", given[1:-1]) if given.startswith('"') else given
    if field == "project" and op == "=":
        return issue.project.key.lower() == value.lower()
    if field == "labels" and op == "=":
        return value.lower() in [one.lower() for one in issue.labels]
    if field == "statuscategory" and op in ("=", "!="):
        names = {CATEGORIES[key][1].lower(): key for key in CATEGORIES}
        if value.lower() not in names:
            raise Wrong(f"The value '{value}' does not exist for the field 'statusCategory'.")
        return (issue.status.category == names[value.lower()]) == (op == "=")
    if field == "assignee" and op.startswith("is"):
        return issue.assignee is None
    if field == "assignee" and op == "=":
        wanted = me.account if value == "currentUser()" else value
        return issue.assignee is not None and wanted in (issue.assignee.account, issue.assignee.name)
    if field == "updated" and op == ">=" and re.fullmatch(r"-\d+m", value):
        return issue.updated >= now - 60 * int(value[1:-1])
    raise Wrong(f"Field '{clause['field']}' does not exist or the operator '{op}' is not known for it.")
