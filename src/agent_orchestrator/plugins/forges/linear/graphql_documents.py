"""The GraphQL queries and mutations that are sent to Linear."""

from __future__ import annotations

PAGE_SIZE = 100
"""Issues and comments per page."""

VIEWER = "query AoViewer { viewer { id displayName } }"

_PERSON = "{ id name displayName email guest app }"

ISSUE_FRAGMENT = f"""
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

COMMENTS_FRAGMENT = f"""
fragment AoComments on CommentConnection {{
  nodes {{ id body createdAt user {_PERSON} botActor {{ name }} externalUser {{ name displayName }} }}
  pageInfo {{ hasNextPage endCursor }}
}}
"""

GET_ISSUE = f"""
query AoIssueRead($id: String!) {{
  viewer {{ id }}
  issue(id: $id) {{
    ...AoIssue
    attachments(first: 50) {{ nodes {{ url }} }}
    comments(first: {PAGE_SIZE}, orderBy: createdAt) {{ ...AoComments }}
  }}
}}
{ISSUE_FRAGMENT}
{COMMENTS_FRAGMENT}
"""

GET_ISSUE_FIELDS = f"""
query AoIssueState($id: String!) {{ issue(id: $id) {{ ...AoIssue }} }}
{ISSUE_FRAGMENT}
"""

MORE_COMMENTS = f"""
query AoIssueComments($id: String!, $after: String!) {{
  issue(id: $id) {{ comments(first: {PAGE_SIZE}, after: $after, orderBy: createdAt) {{ ...AoComments }} }}
}}
{COMMENTS_FRAGMENT}
"""

LIST_ISSUES = f"""
query AoIssues($filter: IssueFilter, $after: String) {{
  issues(filter: $filter, first: {PAGE_SIZE}, after: $after, orderBy: createdAt) {{
    nodes {{ ...AoIssue }}
    pageInfo {{ hasNextPage endCursor }}
  }}
}}
{ISSUE_FRAGMENT}
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

CREATE_LABEL = """
mutation AoLabelCreate($input: IssueLabelCreateInput!) {
  issueLabelCreate(input: $input) { success issueLabel { id name } }
}
"""

USERS = """
query AoUsers($filter: UserFilter) {
  users(filter: $filter, first: 10) { nodes { id name displayName email } }
}
"""

CREATE_ISSUE = f"""
mutation AoIssueCreate($input: IssueCreateInput!) {{
  issueCreate(input: $input) {{ success issue {{ ...AoIssue }} }}
}}
{ISSUE_FRAGMENT}
"""

UPDATE_ISSUE = """
mutation AoIssueUpdate($id: String!, $input: IssueUpdateInput!) {
  issueUpdate(id: $id, input: $input) { success }
}
"""

GET_COMMENT = "query AoComment($id: String!) { comment(id: $id) { id } }"

CREATE_COMMENT = """
mutation AoCommentCreate($input: CommentCreateInput!) {
  commentCreate(input: $input) { success comment { id } }
}
"""

DOCUMENTS = {
    "viewer": VIEWER,
    "get": GET_ISSUE,
    "state": GET_ISSUE_FIELDS,
    "more comments": MORE_COMMENTS,
    "list": LIST_ISSUES,
    "team": TEAM,
    "labels": LABELS,
    "new label": CREATE_LABEL,
    "users": USERS,
    "create": CREATE_ISSUE,
    "update": UPDATE_ISSUE,
    "comment": GET_COMMENT,
    "say": CREATE_COMMENT,
}
"""Every document by a name for people."""
