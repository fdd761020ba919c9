"""The GraphQL queries and mutations that are sent to GitHub. The tests check each of them against the published schema."""

from __future__ import annotations

_AUTHOR_FIELDS = "author { __typename login } authorAssociation"
_PAGE = "pageInfo { hasNextPage endCursor }"

_CHECK = """
fragment Check on StatusCheckRollupContext {
  __typename
  ... on CheckRun {
    id databaseId name status conclusion detailsUrl url title summary startedAt
    checkSuite { app { slug } workflowRun { databaseId event workflow { name } } }
  }
  ... on StatusContext { id context state description targetUrl createdAt }
}
"""

_REVIEW = f"""
fragment Review on PullRequestReview {{
  id state body submittedAt createdAt isMinimized {_AUTHOR_FIELDS} authorCanPushToRepository commit {{ oid }}
}}
"""

_COMMENT_FRAGMENT = f"""
fragment Said on IssueComment {{ id body createdAt isMinimized {_AUTHOR_FIELDS} }}
"""

_LINE_COMMENT_FRAGMENT = f"""
fragment Note on PullRequestReviewComment {{
  id body createdAt isMinimized state path line originalLine {_AUTHOR_FIELDS}
  commit {{ oid }} originalCommit {{ oid }} pullRequestReview {{ id }}
}}
"""

_THREAD = f"""
fragment Thread on PullRequestReviewThread {{
  id isResolved isOutdated path line originalLine
  comments(first: 30) {{ nodes {{ ...Note }} {_PAGE} }}
}}
"""

_PULL = f"""
fragment Pull on PullRequest {{
  id number url title state isDraft updatedAt
  headRefName headRefOid baseRefName baseRefOid isCrossRepository
  repository {{ nameWithOwner }} headRepository {{ nameWithOwner }}
  mergeable mergeStateStatus reviewDecision isInMergeQueue autoMergeRequest {{ enabledAt }} mergeCommit {{ oid }}
  baseRef {{
    refUpdateRule {{ requiredStatusCheckContexts requiredApprovingReviewCount requiresConversationResolution }}
    target {{ oid ... on Commit {{ statusCheckRollup {{ state }} }} }}
  }}
  labels(first: 100) {{ nodes {{ name }} {_PAGE} }}
  commits(last: 1) @include(if: $commits) {{
    nodes {{ commit {{
      oid statusCheckRollup {{ contexts(first: 100) {{ nodes {{ ...Check }} {_PAGE} }} }}
      checkSuites(first: 30) {{ nodes {{ databaseId conclusion workflowRun {{ databaseId url workflow {{ name }} }} }} }}
    }} }}
  }}
  reviews(first: 50) {{ nodes {{ ...Review }} {_PAGE} }}
  reviewThreads(first: 40) @include(if: $reviewThreads) {{ nodes {{ ...Thread }} {_PAGE} }}
  comments(first: 100) @include(if: $comments) {{ nodes {{ ...Said }} {_PAGE} }}
}}
"""

_ALL = _PULL + _CHECK + _REVIEW + _THREAD + _LINE_COMMENT_FRAGMENT + _COMMENT_FRAGMENT

OPTIONAL_PARTS = ("commits", "reviewThreads", "comments")
"""The parts that a query can leave out: if GitHub fails to read one of them, it returns nothing of the whole pull request."""
PAGED_PARTS = frozenset({"reviewThreads", "comments"})
"""The parts that are read page by page if they are too large for one answer."""
_PART_VARIABLES = ", ".join(f"${part}: Boolean = true" for part in OPTIONAL_PARTS)

READ_BY_IDS = (
    f"query Read($ids: [ID!]!, {_PART_VARIABLES}) {{ viewer {{ login }} rateLimit {{ cost }} nodes(ids: $ids) {{ __typename ...Pull }} }}"
    + _ALL
)
"""Read pull requests by their ids. A query for one costs one point, and so does a query for two."""

READ_BY_NUMBER = (
    f"""query Get($owner: String!, $name: String!, $number: Int!, {_PART_VARIABLES}) {{
  viewer {{ login }} rateLimit {{ cost }} repository(owner: $owner, name: $name) {{ pullRequest(number: $number) {{ ...Pull }} }}
}}"""
    + _ALL
)

MORE_PAGES = {
    "comments": f"""query MoreComments($id: ID!, $after: String, $some: Int = 100) {{ node(id: $id) {{ ... on PullRequest {{
  page: comments(first: $some, after: $after) {{ nodes {{ ...Said }} {_PAGE} }} }} }} }}{_COMMENT_FRAGMENT}""",
    "reviews": f"""query MoreReviews($id: ID!, $after: String, $some: Int = 100) {{ node(id: $id) {{ ... on PullRequest {{
  page: reviews(first: $some, after: $after) {{ nodes {{ ...Review }} {_PAGE} }} }} }} }}{_REVIEW}""",
    "reviewThreads": f"""query MoreThreads($id: ID!, $after: String, $some: Int = 80) {{ node(id: $id) {{ ... on PullRequest {{
  page: reviewThreads(first: $some, after: $after) {{ nodes {{ ...Thread }} {_PAGE} }} }} }} }}{_THREAD}{_LINE_COMMENT_FRAGMENT}""",
    "thread": f"""query MoreOfThread($id: ID!, $after: String, $some: Int = 100) {{ node(id: $id) {{ ... on PullRequestReviewThread {{
  page: comments(first: $some, after: $after) {{ nodes {{ ...Note }} {_PAGE} }} }} }} }}{_LINE_COMMENT_FRAGMENT}""",
    "labels": f"""query MoreLabels($id: ID!, $after: String) {{ node(id: $id) {{ ... on PullRequest {{
  page: labels(first: 100, after: $after) {{ nodes {{ name }} {_PAGE} }} }} }} }}""",
    "checks": f"""query MoreChecks($id: ID!, $after: String) {{ node(id: $id) {{ ... on PullRequest {{
  commits(last: 1) {{ nodes {{ commit {{ oid statusCheckRollup {{
    page: contexts(first: 100, after: $after) {{ nodes {{ ...Check }} {_PAGE} }} }} }} }} }} }} }} }}{_CHECK}""",
}
"""The queries for the further pages of each connection."""
SMALL_PAGE_SIZES = {"comments": 20, "reviews": 20, "reviewThreads": 2, "thread": 20}
"""Items per page if a full page is too large: each may have 65,536 characters, and a discussion has 30 of them."""

MERGE_STATE = """query Landing($id: ID!) { node(id: $id) { ... on PullRequest {
  state merged isDraft headRefOid mergeCommit { oid } mergeable mergeStateStatus reviewDecision
  isInMergeQueue isMergeQueueEnabled viewerCanEnableAutoMerge autoMergeRequest { enabledAt }
} } }"""

ENQUEUE = """mutation Enqueue($id: ID!, $head: GitObjectID!) {
  enqueuePullRequest(input: {pullRequestId: $id, expectedHeadOid: $head}) { mergeQueueEntry { position } }
}"""

ENABLE_AUTO_MERGE = """mutation AutoMerge(
  $id: ID!, $head: GitObjectID!, $method: PullRequestMergeMethod!, $title: String, $body: String
) {
  enablePullRequestAutoMerge(input: {
    pullRequestId: $id, expectedHeadOid: $head, mergeMethod: $method, commitHeadline: $title, commitBody: $body
  }) { pullRequest { id } }
}"""

DEQUEUE = "mutation Dequeue($id: ID!) { dequeuePullRequest(input: {id: $id}) { clientMutationId } }"

DISABLE_AUTO_MERGE = """mutation NoAutoMerge($id: ID!) {
  disablePullRequestAutoMerge(input: {pullRequestId: $id}) { pullRequest { id } }
}"""

READY = "mutation Ready($id: ID!) { markPullRequestReadyForReview(input: {pullRequestId: $id}) { pullRequest { id } } }"

RESOLVE = "mutation Resolve($id: ID!) { resolveReviewThread(input: {threadId: $id}) { thread { id isResolved } } }"

REPLY = """mutation Reply($thread: ID!, $body: String!) {
  addPullRequestReviewThreadReply(input: {pullRequestReviewThreadId: $thread, body: $body}) { comment { id } }
}"""

DOCUMENTS = {
    "read": READ_BY_IDS,
    "get": READ_BY_NUMBER,
    **{f"more {name}": text for name, text in MORE_PAGES.items()},
    "landing": MERGE_STATE,
    "enqueue": ENQUEUE,
    "auto-merge": ENABLE_AUTO_MERGE,
    "dequeue": DEQUEUE,
    "no auto-merge": DISABLE_AUTO_MERGE,
    "ready": READY,
    "resolve": RESOLVE,
    "reply": REPLY,
}
"""Every document by a name for people."""
