"""JSON of people, repositories, issues, pull requests and reviews, as the REST API and the webhooks send it."""

from __future__ import annotations

from typing import Any

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.github import rules
from agent_orchestrator.testing.github.state import (
    GitHubComment,
    GitHubIssue,
    GitHubLabel,
    GitHubPullRequest,
    GitHubReview,
    GitHubThread,
    GitHubUser,
    Repo,
    ReviewComment,
)

Json = dict[str, Any]

_REPO_URLS = {
    "archive": "/{archive_format}{/ref}", "assignees": "/assignees{/user}", "blobs": "/git/blobs{/sha}",
    "branches": "/branches{/branch}", "collaborators": "/collaborators{/collaborator}", "comments": "/comments{/number}",
    "commits": "/commits{/sha}", "compare": "/compare/{base}...{head}", "contents": "/contents/{+path}",
    "contributors": "/contributors", "deployments": "/deployments", "downloads": "/downloads", "events": "/events",
    "forks": "/forks", "git_commits": "/git/commits{/sha}", "git_refs": "/git/refs{/sha}", "git_tags": "/git/tags{/sha}",
    "hooks": "/hooks", "issue_comment": "/issues/comments{/number}", "issue_events": "/issues/events{/number}",
    "issues": "/issues{/number}", "keys": "/keys{/key_id}", "labels": "/labels{/name}", "languages": "/languages",
    "merges": "/merges", "milestones": "/milestones{/number}", "notifications": "/notifications{?since,all,participating}",
    "pulls": "/pulls{/number}", "releases": "/releases{/id}", "stargazers": "/stargazers", "statuses": "/statuses/{sha}",
    "subscribers": "/subscribers", "subscription": "/subscription", "tags": "/tags", "teams": "/teams", "trees": "/git/trees{/sha}",
}  # fmt: skip
_USER_URLS = {
    "followers": "/followers", "following": "/following{/other_user}", "gists": "/gists{/gist_id}", "starred": "/starred{/owner}{/repo}",
    "subscriptions": "/subscriptions", "organizations": "/orgs", "repos": "/repos", "events": "/events{/privacy}",
    "received_events": "/received_events",
}  # fmt: skip
_REACTIONS = ("+1", "-1", "laugh", "hooray", "confused", "heart", "rocket", "eyes")


class GitHubShapes:
    """JSON for one viewer; `web` is the address of pages and Git, `api` that of the REST API."""

    def __init__(self, web: str, api: str, viewer: GitHubUser | None = None) -> None:
        self.web, self.api, self.viewer = web, api, viewer

    def user(self, user: GitHubUser) -> Json:
        url = f"{self.api}/users/{user.login}"
        return {
            "login": user.login, "id": user.id, "node_id": user.node_id, "avatar_url": f"{self.web}/avatars/u/{user.id}",
            "gravatar_id": "", "url": url, "html_url": f"{self.web}/{user.login}",
            **{f"{name}_url": url + tail for name, tail in _USER_URLS.items()},
            "type": user.kind, "site_admin": False,
        }  # fmt: skip

    def optional_user(self, user: GitHubUser | None) -> Json | None:
        return self.user(user) if user else None

    def whole_user(self, user: GitHubUser, private: bool) -> Json:
        shape = self.user(user) | {
            "name": user.name or None, "company": None, "blog": "", "location": None, "email": None, "hireable": None, "bio": None,
            "twitter_username": None, "public_repos": 0, "public_gists": 0, "followers": 0, "following": 0,
            "created_at": user.created_at, "updated_at": user.updated_at, "user_view_type": "public",
        }  # fmt: skip
        if private:
            zero = ("private_gists", "total_private_repos", "owned_private_repos", "disk_usage", "collaborators")
            shape |= dict.fromkeys(zero, 0) | {"two_factor_authentication": True, "user_view_type": "private"}
        return shape

    def repo_url(self, repo: Repo) -> str:
        return f"{self.api}/repos/{repo.full_name}"

    def repo_page(self, repo: Repo) -> str:
        return f"{self.web}/{repo.full_name}"

    def lite_repo(self, repo: Repo) -> Json:
        url = self.repo_url(repo)
        return {
            "id": repo.id, "node_id": repo.node_id, "name": repo.name, "full_name": repo.full_name, "private": repo.private,
            "owner": self.user(repo.owner), "html_url": self.repo_page(repo), "description": repo.description,
            "fork": repo.parent is not None, "url": url,
            **{f"{name}_url": url + tail for name, tail in _REPO_URLS.items()},
        }  # fmt: skip

    def repo(self, repo: Repo) -> Json:
        count = sum(issue.state == "open" for issue in repo.issues.values())
        page = self.repo_page(repo)
        host = self.web.split("://")[1]
        return self.lite_repo(repo) | {
            "created_at": repo.created_at, "updated_at": repo.updated_at, "pushed_at": repo.pushed_at or repo.created_at,
            "git_url": f"git://{host}/{repo.full_name}.git", "ssh_url": f"git@{host.split(':')[0]}:{repo.full_name}.git",
            "clone_url": f"{page}.git", "svn_url": page, "homepage": None, "size": 1, "stargazers_count": 0, "watchers_count": 0,
            "language": None, "has_issues": True, "has_projects": False, "has_downloads": True, "has_wiki": False, "has_pages": False,
            "has_discussions": False, "forks_count": 0, "mirror_url": None, "archived": repo.archived, "disabled": False,
            "open_issues_count": count, "license": None, "allow_forking": True, "is_template": False,
            "web_commit_signoff_required": False, "topics": [], "visibility": "private" if repo.private else "public", "forks": 0,
            "open_issues": count, "watchers": 0, "default_branch": repo.default_branch, "custom_properties": {},
        }  # fmt: skip

    def whole_repo(self, repo: Repo) -> Json:
        shape = self.repo(repo) | {
            "subscribers_count": 0, "network_count": 0, "temp_clone_token": None,
            "permissions": self.permissions(repo, self.viewer),
            "allow_squash_merge": "squash" in repo.methods, "allow_merge_commit": "merge" in repo.methods,
            "allow_rebase_merge": "rebase" in repo.methods, "allow_auto_merge": repo.allow_auto_merge,
            "delete_branch_on_merge": repo.delete_branch_on_merge, "allow_update_branch": False,
            "use_squash_pr_title_as_default": False,
        }  # fmt: skip
        if repo.parent:
            shape |= {"parent": self.repo(repo.parent), "source": self.repo(repo.parent)}
        return shape

    def permissions(self, repo: Repo, user: GitHubUser | None) -> Json:
        granted = rules.permission(repo, user)
        return {
            "admin": granted == "admin", "maintain": granted == "admin", "push": granted in ("admin", "write"),
            "triage": granted in ("admin", "write", "triage"), "pull": granted != "none",
        }  # fmt: skip

    def label(self, repo: Repo, label: GitHubLabel) -> Json:
        return {
            "id": label.id, "node_id": label.node_id, "url": f"{self.repo_url(repo)}/labels/{label.name}", "name": label.name,
            "color": label.color, "default": False, "description": label.description or "",
        }  # fmt: skip

    def reactions(self, url: str) -> Json:
        return {"url": f"{url}/reactions", "total_count": 0, **dict.fromkeys(_REACTIONS, 0)}

    def issue_page(self, issue: GitHubIssue) -> str:
        return f"{self.repo_page(issue.repo)}/{'pull' if isinstance(issue, GitHubPullRequest) else 'issues'}/{issue.number}"

    def issue(self, issue: GitHubIssue) -> Json:
        url = f"{self.repo_url(issue.repo)}/issues/{issue.number}"
        shape = {
            "url": url, "repository_url": self.repo_url(issue.repo), "labels_url": f"{url}/labels{{/name}}",
            "comments_url": f"{url}/comments", "events_url": f"{url}/events", "html_url": self.issue_page(issue), "id": issue.id,
            "node_id": issue.node_id, "number": issue.number, "title": issue.title, "user": self.user(issue.user),
            "labels": [self.label(issue.repo, label) for label in issue.labels], "state": issue.state, "locked": False,
            "assignee": self.optional_user(issue.assignees[0] if issue.assignees else None),
            "assignees": [self.user(user) for user in issue.assignees], "milestone": None, "comments": len(issue.comments),
            "created_at": issue.created_at, "updated_at": issue.updated_at, "closed_at": issue.closed_at,
            "author_association": rules.association(issue.repo, issue.user, issue.association), "active_lock_reason": None,
            "body": issue.body, "reactions": self.reactions(url), "timeline_url": f"{url}/timeline",
            "performed_via_github_app": None, "state_reason": issue.state_reason,
        }  # fmt: skip
        if isinstance(issue, GitHubPullRequest):
            page = self.issue_page(issue)
            shape["draft"] = issue.draft
            shape["pull_request"] = {
                "url": self.pull_url(issue), "html_url": page, "diff_url": f"{page}.diff", "patch_url": f"{page}.patch",
                "merged_at": issue.merged_at,
            }  # fmt: skip
        return shape

    def comment(self, comment: GitHubComment) -> Json:
        repo = comment.issue.repo
        url = f"{self.repo_url(repo)}/issues/comments/{comment.id}"
        return {
            "url": url, "html_url": f"{self.issue_page(comment.issue)}#issuecomment-{comment.id}",
            "issue_url": f"{self.repo_url(repo)}/issues/{comment.issue.number}", "id": comment.id, "node_id": comment.node_id,
            "user": self.user(comment.user), "created_at": comment.created_at, "updated_at": comment.updated_at,
            "author_association": rules.association(repo, comment.user, comment.association), "body": comment.body,
            "reactions": self.reactions(url), "performed_via_github_app": None,
        }  # fmt: skip

    def pull_url(self, pull: GitHubPullRequest) -> str:
        return f"{self.repo_url(pull.repo)}/pulls/{pull.number}"

    def simple_pull(self, pull: GitHubPullRequest) -> Json:
        url, page, repo_url = self.pull_url(pull), self.issue_page(pull), self.repo_url(pull.repo)
        issue = f"{repo_url}/issues/{pull.number}"
        links = {
            "self": url, "html": page, "issue": issue, "comments": f"{issue}/comments", "review_comments": f"{url}/comments",
            "review_comment": f"{repo_url}/pulls/comments{{/number}}", "commits": f"{url}/commits",
            "statuses": f"{repo_url}/statuses/{pull.head_sha}",
        }  # fmt: skip
        return {
            "url": url, "id": pull.id, "node_id": pull.node_id, "html_url": page, "diff_url": f"{page}.diff",
            "patch_url": f"{page}.patch", "issue_url": issue, "number": pull.number, "state": pull.state, "locked": False,
            "title": pull.title, "user": self.user(pull.user), "body": pull.body, "created_at": pull.created_at,
            "updated_at": pull.updated_at, "closed_at": pull.closed_at, "merged_at": pull.merged_at,
            "merge_commit_sha": pull.merge_commit, "assignee": self.optional_user(pull.assignees[0] if pull.assignees else None),
            "assignees": [self.user(user) for user in pull.assignees],
            "requested_reviewers": [self.user(user) for user in pull.requested], "requested_teams": [],
            "labels": [self.label(pull.repo, label) for label in pull.labels], "milestone": None, "draft": pull.draft,
            "commits_url": links["commits"], "review_comments_url": links["review_comments"],
            "review_comment_url": links["review_comment"], "comments_url": links["comments"], "statuses_url": links["statuses"],
            "head": self.branch_end(pull.head_repo, pull.head_ref, pull.head_sha, pull.user),
            "base": self.branch_end(pull.repo, pull.base_ref, rules.base_sha(pull), pull.repo.owner),
            "_links": {name: {"href": href} for name, href in links.items()},
            "author_association": rules.association(pull.repo, pull.user, pull.association),
            "auto_merge": self.auto_merge(pull), "active_lock_reason": None,
        }  # fmt: skip

    def branch_end(self, repo: Repo | None, ref: str, sha: str, owner: GitHubUser) -> Json:
        user = repo.owner if repo else owner
        return {
            "label": f"{user.login}:{ref}", "ref": ref, "sha": sha, "user": self.user(user), "repo": self.repo(repo) if repo else None,
        }  # fmt: skip

    def auto_merge(self, pull: GitHubPullRequest) -> Json | None:
        auto = pull.auto_merge
        return None if auto is None else {
            "enabled_by": self.user(auto.by), "merge_method": auto.method, "commit_title": auto.title or "",
            "commit_message": auto.message or "",
        }  # fmt: skip

    def pull(self, pull: GitHubPullRequest, *, ask: bool = True) -> Json:
        base = rules.base_sha(pull)
        files = bare_repository.changes(pull.repo.path, base, pull.head_sha)
        can = rules.mergeable(pull, ask=ask)
        state = rules.merge_state(pull, can).lower()
        return self.simple_pull(pull) | {
            "merged": pull.merged, "mergeable": can, "rebaseable": can, "mergeable_state": state,
            "merged_by": self.optional_user(pull.merged_by), "comments": len(pull.comments),
            "review_comments": sum(len(thread.comments) for thread in pull.threads), "maintainer_can_modify": False,
            "commits": len(bare_repository.commits(pull.repo.path, base, pull.head_sha)),
            "additions": sum(file.additions for file in files),
            "deletions": sum(file.deletions for file in files), "changed_files": len(files),
        }  # fmt: skip

    def review(self, review: GitHubReview) -> Json:
        page, url = f"{self.issue_page(review.pull)}#pullrequestreview-{review.id}", self.pull_url(review.pull)
        return {
            "id": review.id, "node_id": review.node_id, "user": self.user(review.user), "body": review.body, "state": review.state,
            "html_url": page, "pull_request_url": url, "commit_id": review.commit_id, "submitted_at": review.submitted_at,
            "author_association": rules.association(review.pull.repo, review.user, review.association),
            "_links": {"html": {"href": page}, "pull_request": {"href": url}},
        }  # fmt: skip

    def review_comment(self, comment: ReviewComment) -> Json:
        thread = comment.thread
        url = f"{self.repo_url(thread.pull.repo)}/pulls/comments/{comment.id}"
        page, pull_url = f"{self.issue_page(thread.pull)}#discussion_r{comment.id}", self.pull_url(thread.pull)
        shape = {
            "url": url, "pull_request_review_id": comment.review.id, "id": comment.id, "node_id": comment.node_id,
            "diff_hunk": thread.hunk, "path": thread.path, "position": None if thread.outdated else 1, "original_position": 1,
            "commit_id": comment.commit_id, "original_commit_id": thread.original_commit, "user": self.user(comment.user),
            "body": comment.body, "created_at": comment.created_at, "updated_at": comment.updated_at, "html_url": page,
            "pull_request_url": pull_url,
            "author_association": rules.association(thread.pull.repo, comment.user, comment.association),
            "_links": {"self": {"href": url}, "html": {"href": page}, "pull_request": {"href": pull_url}},
            "reactions": self.reactions(url), "start_line": thread.start_line, "original_start_line": thread.start_line,
            "start_side": thread.side if thread.start_line else None, "line": None if thread.outdated else thread.line,
            "original_line": thread.original_line, "side": thread.side, "subject_type": "file" if thread.whole_file else "line",
        }  # fmt: skip
        if comment.reply_to:
            shape["in_reply_to_id"] = comment.reply_to.id
        return shape

    def thread(self, thread: GitHubThread) -> Json:
        return {"node_id": thread.node_id, "comments": [self.review_comment(comment) for comment in thread.comments]}
