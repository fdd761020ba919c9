"""The GraphQL queries and mutations that are sent to Linear."""

from __future__ import annotations

PAGE = 100
"""Issues and comments per page."""

VIEWER = "query AoViewer { viewer { id displayName } }"

_PERSON = "{ id name displayName email guest app }"

ISSUE = f"""
fragment AoIssue on Issue {{
  id identifier title description url branchName createdAt updatedAt
  state {{ id name type }}
  team {{ id key }}
  labels(first: 30) {{ nodes {{ id name }} }}
  assignee {_PERSON}
  creator {_PERSON}
  botActor {{ name }}
  externalUserCreator {{ name displayName }}
}}
"""

COMMENTS = f"""
fragment AoComments on CommentConnection {{
  nodes {{ id body createdAt user {_PERSON} botActor {{ name }} externalUser {{ name displayName }} }}
  pageInfo {{ hasNextPage endCursor }}
}}
"""

GET = f"""
query AoIssueRead($id: String!) {{
  viewer {{ id }}
  issue(id: $id) {{
    ...AoIssue
    attachments(first: 50) {{ nodes {{ url }} }}
    comments(first: {PAGE}, orderBy: createdAt) {{ ...AoComments }}
  }}
}}
{ISSUE}
{COMMENTS}
"""

STATE = f"""
query AoIssueState($id: String!) {{ issue(id: $id) {{ ...AoIssue }} }}
{ISSUE}
"""

MORE_COMMENTS = f"""
query AoIssueComments($id: String!, $after: String!) {{
  issue(id: $id) {{ comments(first: {PAGE}, after: $after, orderBy: createdAt) {{ ...AoComments }} }}
}}
{COMMENTS}
"""

LIST = f"""
query AoIssues($filter: IssueFilter, $after: String) {{
  issues(filter: $filter, first: {PAGE}, after: $after, orderBy: createdAt) {{
    nodes {{ ...AoIssue }}
    pageInfo {{ hasNextPage endCursor }}
  }}
}}
{ISSUE}
"""

TEAM = """
query AoTeam($filter: TeamFilter) {
  teams(filter: $filter, first: 1) {
    nodes { id key name states(first: 100) { nodes { id name type position } } }
  }
}
"""

LABELS = """
query AoLabels($filter: IssueLabelFilter) {
  issueLabels(filter: $filter, first: 100) { nodes { id name isGroup team { id } } }
}
"""

NEW_LABEL = """
mutation AoLabelCreate($input: IssueLabelCreateInput!) {
  issueLabelCreate(input: $input) { success issueLabel { id name } }
}
"""

USERS = """
query AoUsers($filter: UserFilter) {
  users(filter: $filter, first: 10) { nodes { id name displayName email } }
}
"""

CREATE = f"""
mutation AoIssueCreate($input: IssueCreateInput!) {{
  issueCreate(input: $input) {{ success issue {{ ...AoIssue }} }}
}}
{ISSUE}
"""

UPDATE = """
mutation AoIssueUpdate($id: String!, $input: IssueUpdateInput!) {
  issueUpdate(id: $id, input: $input) { success }
}
"""

COMMENT = "query AoComment($id: String!) { comment(id: $id) { id } }"

SAY = """
mutation AoCommentCreate($input: CommentCreateInput!) {
  commentCreate(input: $input) { success comment { id } }
}
"""

ALL = {
    "viewer": VIEWER,
    "get": GET,
    "state": STATE,
    "more comments": MORE_COMMENTS,
    "list": LIST,
    "team": TEAM,
    "labels": LABELS,
    "new label": NEW_LABEL,
    "users": USERS,
    "create": CREATE,
    "update": UPDATE,
    "comment": COMMENT,
    "say": SAY,
}
"""Every document by a name for people."""
