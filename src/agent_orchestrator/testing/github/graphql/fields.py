"""GraphQL: the resolver of each field of the published types."""

from __future__ import annotations

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.github import issues, rules
from agent_orchestrator.testing.github.graphql import resolvers as read
from agent_orchestrator.testing.github.graphql.base import CommitNode, RefNode, Rollup, connection
from agent_orchestrator.testing.github.shapes_ci import APPS
from agent_orchestrator.testing.github.state import (
    AutoMerge,
    CheckSuite,
    CommitStatus,
    GitHubCheckRun,
    GitHubComment,
    GitHubIssue,
    GitHubLabel,
    GitHubPullRequest,
    GitHubReview,
    GitHubThread,
    QueueEntry,
    Repo,
    ReviewComment,
    WorkflowRun,
)

TYPES: dict[type, str] = {
    Repo: "Repository", GitHubPullRequest: "PullRequest", GitHubIssue: "Issue", GitHubComment: "IssueComment",
    GitHubReview: "PullRequestReview",
    ReviewComment: "PullRequestReviewComment", GitHubThread: "PullRequestReviewThread", GitHubCheckRun: "CheckRun",
    CheckSuite: "CheckSuite",
    WorkflowRun: "WorkflowRun", CommitStatus: "StatusContext", GitHubLabel: "Label", QueueEntry: "MergeQueueEntry",
    AutoMerge: "AutoMergeRequest",
    CommitNode: "Commit", RefNode: "Ref", Rollup: "StatusCheckRollup",
}  # fmt: skip

_SIGNED: dict[str, read.Resolver] = {
    "name": lambda s: s["name"],
    "email": lambda s: s["email"],
    "user": read.constant_resolver(None),
}

_TEXT: dict[str, read.Resolver] = {
    "author": read.attribute("user"), "authorAssociation": lambda s: read.association(s), "bodyText": lambda s: s.body or "",
    "body": lambda s: s.body or "", "viewerDidAuthor": lambda s, c: s.user is c.viewer,
    "isMinimized": lambda s: getattr(s, "minimized", False),
    "minimizedReason": lambda s: "outdated" if getattr(s, "minimized", False) else "",
    "includesCreatedEdit": read.constant_resolver(False), "reactionGroups": read.constant_resolver([]),
    "lastEditedAt": read.constant_resolver(None),
    "publishedAt": lambda s: s.created_at, "viewerCanUpdate": lambda s, c: s.user is c.viewer, "editor": read.constant_resolver(None),
}  # fmt: skip

_ISSUE: dict[str, read.Resolver] = {
    **_TEXT, "labels": read.connection_of(lambda s: s.labels), "assignees": read.connection_of(lambda s: s.assignees),
    "comments": read.connection_of(lambda s: s.comments),
    "closed": lambda s: s.state != "open", "milestone": read.constant_resolver(None), "projectCards": read.connection_of(lambda _: []),
    "projectItems": read.connection_of(lambda _: []), "locked": read.constant_resolver(False),
    "activeLockReason": read.constant_resolver(None),
    "participants": read.connection_of(lambda s: [s.user]),
}  # fmt: skip

FIELDS: dict[str, dict[str, read.Resolver]] = {
    "*": {
        "id": lambda s: s.node_id, "databaseId": lambda s: s.id, "fullDatabaseId": lambda s: str(s.id),
        "url": lambda s, c: read.page_url(s, c), "resourcePath": lambda s, c: read.page_url(s, c).removeprefix(c.show.web),
        "repository": lambda s: read.repo_of(s),
    },
    "Query": {
        "viewer": lambda _, c: c.viewer, "repository": read.named_repository, "node": read.find_node,
        "user": read.person, "repositoryOwner": read.person,
        "organization": read.organization, "search": read.search,
        "nodes": lambda _, c, a: [read.node_or_refusal(c, item) for item in a["ids"]],
        "rateLimit": lambda _, c: {
            "cost": c.points, "limit": c.limit.limit, "nodeCount": c.nodes, "remaining": max(0, c.limit.remaining - c.points),
            "resetAt": read.time_of(c.limit.reset), "used": c.limit.used + c.points,
        },
    },
    **{kind: {
        "login": lambda s: s.graphql_login, "name": lambda s: s.name or None,
        "avatarUrl": lambda s, c: f"{c.show.web}/avatars/u/{s.id}", "isViewer": lambda s, c: s is c.viewer,
        "email": read.constant_resolver(""), "projectsV2": read.connection_of(lambda _: []), "projects": read.connection_of(lambda _: []),
        "organizations": read.connection_of(lambda _: []), "teams": read.connection_of(lambda _: []),
    } for kind in ("User", "Bot", "Organization")},
    "Repository": {
        "nameWithOwner": lambda s: s.full_name, "isPrivate": lambda s: s.private, "isFork": lambda s: bool(s.parent),
        "isArchived": lambda s: s.archived, "isEmpty": lambda s: not s.refs, "pullRequests": read.pulls_of, "issues": read.issues_of,
        "defaultBranchRef": lambda s: read.ref_node(s, s.default_branch), "pullRequest": read.by_number(GitHubPullRequest, "a PullRequest"),
        "issue": read.by_number(GitHubIssue, "an Issue"),
        "issueOrPullRequest": lambda s, c, a: s.issues.get(a["number"]) or read.by_number(GitHubIssue, "an issue or pull request")(s, c, a),
        "viewerPermission": lambda s, c: {"none": None}.get(rules.permission(s, c.viewer), rules.permission(s, c.viewer).upper()),
        "hasIssuesEnabled": read.constant_resolver(True), "hasWikiEnabled": read.constant_resolver(False),
        "hasProjectsEnabled": read.constant_resolver(False),
        "mergeCommitAllowed": lambda s: "merge" in s.methods, "squashMergeAllowed": lambda s: "squash" in s.methods,
        "rebaseMergeAllowed": lambda s: "rebase" in s.methods, "autoMergeAllowed": lambda s: s.allow_auto_merge,
        "viewerDefaultMergeMethod": read.constant_resolver("MERGE"), "viewerDefaultCommitEmail": read.constant_resolver(None),
        "labels": lambda s, _, a: connection(list(s.labels.values()), a), "milestones": read.connection_of(lambda _: []),
        "projects": read.connection_of(lambda _: []), "projectsV2": read.connection_of(lambda _: []),
        "sshUrl": lambda s, c: c.show.repo(s)["ssh_url"],
        "assignableUsers": lambda s, c, a: connection([s.owner, *(c.world.user(login) for login in s.people)], a),
        "mentionableUsers": lambda s, c, a: connection([s.owner, *(c.world.user(login) for login in s.people)], a),
        "ref": lambda s, _, a: read.ref_node(s, a["qualifiedName"].removeprefix("refs/heads/")),
        "object": lambda s, _, a: CommitNode(s, sha) if (sha := bare_repository.resolve(s.path,
        a.get("oid") or a.get("expression"))) else None,
        "deleteBranchOnMerge": lambda s: s.delete_branch_on_merge, "issueTemplates": read.constant_resolver([]),
        "pullRequestTemplates": read.constant_resolver([]),
        "mergeQueue": lambda s, _, a: read.queue_of(s, a.get("branch") or s.default_branch),
        "visibility": lambda s: "PRIVATE" if s.private else "PUBLIC",
        "viewerCanAdminister": lambda s, c: rules.permission(s, c.viewer) == "admin", "repository": lambda s: s,
    },
    "Issue": {
        **_ISSUE, "state": lambda s: s.state.upper(), "stateReason": lambda s: read.upper_case_state(s.state_reason),
        "linkedBranches": read.connection_of(lambda _: []), "timelineItems": read.connection_of(lambda _: []),
    },
    "PullRequest": {
        **_ISSUE, "state": lambda s: read.pull_state(s), "isDraft": lambda s: s.draft, "headRefName": lambda s: s.head_ref,
        "headRefOid": lambda s: s.head_sha, "baseRefName": lambda s: s.base_ref, "baseRefOid": lambda s: rules.base_sha(s),
        "headRepository": lambda s: s.head_repo, "headRepositoryOwner": lambda s: s.head_repo and s.head_repo.owner,
        "headRef": lambda s: read.ref_node(s.head_repo, s.head_ref), "baseRef": lambda s: read.ref_node(s.repo, s.base_ref),
        "baseRepository": lambda s: s.repo, "isCrossRepository": lambda s: s.head_repo is not s.repo, "mergeable": read.mergeable,
        "mergeStateStatus": lambda s: rules.merge_state(s, rules.mergeable(s, ask=False)),
        "reviewDecision": lambda s: rules.review_decision(s), "isInMergeQueue": lambda s: s.queue is not None,
        "isMergeQueueEnabled": lambda s: rules.protection(s).merge_queue, "mergeQueueEntry": lambda s: s.queue,
        "autoMergeRequest": lambda s: s.auto_merge,
        "viewerCanEnableAutoMerge": lambda s, c: s.repo.allow_auto_merge and rules.may_push(s.repo,
        c.viewer) and bool(rules.unmet_requirement(s)),
        "viewerCanDisableAutoMerge": lambda s, c: s.auto_merge is not None and rules.may_push(s.repo, c.viewer),
        "viewerCanMergeAsAdmin": read.constant_resolver(False), "maintainerCanModify": read.constant_resolver(False),
        "merged": lambda s: s.merged,
        "mergeCommit": lambda s: CommitNode(s.repo, s.merge_commit) if s.merge_commit else None,
        "potentialMergeCommit": read.constant_resolver(None),
        "reviewThreads": read.connection_of(lambda s: [item for item in s.threads if item.comments[0].review.state != "PENDING"]),
        "reviews": read.reviews_of,
        "latestReviews": read.latest_reviews, "latestOpinionatedReviews": lambda s, _, a: connection(rules.latest_opinions(s), a),
        "reviewRequests": read.connection_of(lambda s: [{"requestedReviewer": user, "asCodeOwner": False} for user in s.requested]),
        "commits": lambda s, _, a: connection(
            [{"commit": CommitNode(s.repo, sha)} for sha in bare_repository.commits(s.repo.path, rules.base_sha(s), s.head_sha)], a),
        "files": lambda s, _, a: connection([
            {"path": file.path, "additions": file.additions, "deletions": file.deletions,
             "changeType": {"added": "ADDED", "removed": "DELETED"}.get(file.status, "MODIFIED")} for file in read.files_of(s)], a),
        "additions": lambda s: sum(file.additions for file in read.files_of(s)),
        "deletions": lambda s: sum(file.deletions for file in read.files_of(s)),
        "changedFiles": lambda s: len(read.files_of(s)), "statusCheckRollup": lambda s: read.rollup_of(CommitNode(s.repo, s.head_sha)),
        "closingIssuesReferences": read.connection_of(lambda s: [s.repo.issues[number] for number in issues.closing_numbers(s)]),
        "headLabel": lambda s: s.head_ref, "totalCommentsCount": lambda s: len(s.comments),
        "timelineItems": read.connection_of(lambda _: []),
    },
    "IssueComment": {**_TEXT, "issue": lambda s: s.issue, "pullRequest": lambda s: s.issue if isinstance(s.issue,
    GitHubPullRequest) else None},
    "PullRequestReview": {
        **_TEXT, "pullRequest": lambda s: s.pull, "commit": lambda s: CommitNode(s.pull.repo, s.commit_id),
        "authorCanPushToRepository": lambda s: rules.may_push(s.pull.repo, s.user),
        "comments": read.connection_of(lambda s: [item for thread in s.pull.threads for item in thread.comments if item.review is s]),
    },
    "PullRequestReviewThread": {
        "pullRequest": lambda s: s.pull, "comments": read.connection_of(lambda s: s.comments),
        "isResolved": lambda s: s.resolved_by is not None,
        "isOutdated": lambda s: s.outdated, "isCollapsed": lambda s: s.outdated or s.resolved_by is not None,
        "originalStartLine": lambda s: s.start_line, "diffSide": lambda s: s.side, "startDiffSide": lambda _: None,
        "subjectType": lambda s: "FILE" if s.whole_file else "LINE", "viewerCanReply": read.constant_resolver(True),
        "viewerCanResolve": lambda s: s.resolved_by is None, "viewerCanUnresolve": lambda s: s.resolved_by is not None,
    },
    "PullRequestReviewComment": {
        **_TEXT, "path": lambda s: s.thread.path, "line": lambda s: None if s.thread.outdated else s.thread.line,
        "originalLine": lambda s: s.thread.original_line, "startLine": lambda s: s.thread.start_line,
        "originalStartLine": lambda s: s.thread.start_line, "diffHunk": lambda s: s.thread.hunk,
        "outdated": lambda s: s.thread.outdated, "pullRequest": lambda s: s.thread.pull,
        "pullRequestReview": lambda s: s.review, "replyTo": lambda s: s.reply_to, "position": read.constant_resolver(1),
        "originalPosition": read.constant_resolver(1),
        "state": lambda s: "PENDING" if s.review.state == "PENDING" else "SUBMITTED",
        "commit": lambda s: CommitNode(s.thread.pull.repo, s.commit_id),
        "originalCommit": lambda s: CommitNode(s.thread.pull.repo, s.thread.original_commit),
        "subjectType": lambda s: "FILE" if s.thread.whole_file else "LINE",
    },
    "Label": {"isDefault": read.constant_resolver(False)},
    "Ref": {
        "id": lambda s: f"REF_{s.repo.id}_{s.name}", "target": lambda s: CommitNode(s.repo, s.sha),
        "prefix": read.constant_resolver("refs/heads/"),
        "refUpdateRule": lambda s: read.update_rule(s), "branchProtectionRule": lambda s: read.protection_rule(s),
        "associatedPullRequests": read.pulls_of,
    },
    "Commit": {
        "id": lambda s: f"C_{s.sha}", "oid": lambda s: s.sha, "abbreviatedOid": lambda s: s.sha[:7],
        "message": lambda s: s.data.message, "messageHeadline": lambda s: s.data.message.split("\n")[0],
        "messageBody": lambda s: s.data.message.partition("\n")[2].strip(), "committedDate": lambda s: s.data.committed,
        "authoredDate": lambda s: s.data.date, "statusCheckRollup": lambda s: read.rollup_of(s),
        "url": lambda s, c: f"{c.show.repo_page(s.repo)}/commit/{s.sha}",
        "author": lambda s: {"name": s.data.author, "email": s.data.email, "user": None},
        "authors": lambda s, _, a: connection([{"name": s.data.author, "email": s.data.email, "user": None}], a),
        "checkSuites": lambda s, _, a: connection(rules.suites(s.repo, s.sha), a),
        "parents": read.connection_of(lambda s: [CommitNode(s.repo, sha) for sha in s.data.parents]),
        "associatedPullRequests": read.connection_of(lambda s: [p for p in s.repo.pulls() if s.sha in (p.head_sha, p.merge_commit)]),
    },
    "StatusCheckRollup": {
        "id": lambda s: f"SCR_{s.repo.id}_{s.sha}", "contexts": read.contexts_of, "commit": lambda s: CommitNode(s.repo, s.sha),
    },
    "CheckRun": {
        "status": lambda s: s.status.upper(), "conclusion": lambda s: read.upper_case_state(s.conclusion), "checkSuite": lambda s: s.suite,
        "detailsUrl": lambda s, c: s.details_url or c.show.run_page(s), "isRequired": read.is_required,
        "permalink": lambda s, c: c.show.run_page(s), "externalId": lambda s: f"job-{s.id}",
        "annotations": read.connection_of(lambda s: s.annotations),
    },
    "CheckSuite": {
        "status": lambda s: rules.suite_state(s)[0].upper(), "conclusion": lambda s: read.upper_case_state(rules.suite_state(s)[1]),
        "app": lambda s: {"slug": s.app, "name": APPS.get(s.app, (0, s.app))[1]}, "workflowRun": lambda s: s.workflow,
        "commit": lambda s: CommitNode(s.repo, s.head_sha), "branch": lambda s: read.ref_node(s.repo, s.branch or ""),
        "checkRuns": read.connection_of(lambda s: [run for run in s.runs if not run.replaced]),
    },
    "WorkflowRun": {"workflow": lambda s, c: {"name": s.name, "databaseId": c.show.workflow_id(s)}, "checkSuite": lambda s: s.suite},
    "StatusContext": {"state": lambda s: s.state.upper(), "isRequired": read.is_required, "commit": lambda s: CommitNode(s.repo, s.sha)},
    "MergeQueueEntry": {
        "enqueuedAt": lambda s: s.created_at, "enqueuer": lambda s: s.by, "position": lambda s: read.position_in_queue(s),
        "pullRequest": lambda s: s.pull, "jump": read.constant_resolver(False), "solo": read.constant_resolver(False),
        "estimatedTimeToMerge": read.constant_resolver(None),
        "headCommit": lambda s: CommitNode(s.pull.repo, s.head_sha) if s.head_sha else None,
        "baseCommit": lambda s: CommitNode(s.pull.repo, s.base_sha) if s.base_sha else None,
        "mergeQueue": lambda s: read.queue_of(s.pull.repo, s.pull.base_ref),
    },
    "MergeQueue": {"entries": lambda s, _, a: connection(s["lined"], a)},
    "AutoMergeRequest": {
        "enabledAt": lambda s: s.at, "enabledBy": lambda s: s.by, "mergeMethod": lambda s: s.method.upper(),
        "commitHeadline": lambda s: s.title, "commitBody": lambda s: s.message, "authorEmail": read.constant_resolver(None),
    },
    "GitActor": _SIGNED,
}  # fmt: skip
