"""Facts derived from the state: permissions, and whether a pull request may be merged and why not."""

from __future__ import annotations

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.github.state import (
    CheckSuite,
    CommitStatus,
    GitHubCheckRun,
    GitHubPullRequest,
    GitHubReview,
    GitHubUser,
    Protection,
    Repo,
)

_PASSED_CONCLUSIONS = {"success", "neutral", "skipped"}


def permission(repo: Repo, user: GitHubUser | None) -> str:
    """Return admin, write, triage, read or none."""
    if user is None:
        return "none" if repo.private else "read"
    if user is repo.owner or user.login in repo.owner.members:
        return "admin"
    return repo.people.get(user.login, "none" if repo.private else "read")


def may_push(repo: Repo, user: GitHubUser | None) -> bool:
    return permission(repo, user) in ("admin", "write")


def may_triage(repo: Repo, user: GitHubUser | None) -> bool:
    return permission(repo, user) in ("admin", "write", "triage")


def association(repo: Repo, user: GitHubUser, override: str | None = None) -> str:
    if override:
        return override
    if user is repo.owner:
        return "OWNER"
    if user.login in repo.owner.members:
        return "MEMBER"
    if user.login in repo.people:
        return "COLLABORATOR"
    if any(pull.merged and pull.user is user for pull in repo.pulls()):
        return "CONTRIBUTOR"
    return "FIRST_TIME_CONTRIBUTOR" if any(pull.user is user for pull in repo.pulls()) else "NONE"


def protection(pull: GitHubPullRequest) -> Protection:
    return pull.repo.protections.get(pull.base_ref, Protection())


def base_sha(pull: GitHubPullRequest) -> str:
    """Return the current commit of the base; for a merged pull request, the one before the merge."""
    return pull.base_sha if pull.merged else pull.repo.head(pull.base_ref) or pull.base_sha


def mergeable(pull: GitHubPullRequest, *, ask: bool = True) -> bool | None:
    """Return whether it can be merged, or None while unknown; asking starts the computation, as on GitHub."""
    if pull.state != "open":
        return None
    if pull.unknown_left > 0:
        pull.unknown_left -= ask
        return None
    return bare_repository.merge_tree(pull.repo.path, base_sha(pull), pull.head_sha) is not None


def merge_state(pull: GitHubPullRequest, can: bool | None) -> str:
    """Return GraphQL's mergeStateStatus; `can` is the result of `mergeable`."""
    rules = protection(pull)
    if pull.state != "open" or can is None:
        return "UNKNOWN"
    if not can:
        return "DIRTY"
    if pull.draft:
        return "DRAFT"
    if unmet_requirement(pull):
        return "BLOCKED"
    if rules.strict and not bare_repository.is_ancestor(pull.repo.path, base_sha(pull), pull.head_sha):
        return "BEHIND"
    if rollup(pull.repo, pull.head_sha) in ("FAILURE", "ERROR", "PENDING"):
        return "UNSTABLE"
    return "CLEAN"


def unmet_requirement(pull: GitHubPullRequest) -> str | None:
    """Return the first unmet requirement of the branch's protection in GitHub's words, or None."""
    rules = protection(pull)
    decision = review_decision(pull)
    if decision == "CHANGES_REQUESTED":
        return "Changes have been requested."
    if decision == "REVIEW_REQUIRED":
        return f"At least {rules.approvals} approving review is required by reviewers with write access."
    for name in rules.checks:
        if not has_check_passed(pull.repo, pull.head_sha, name):
            return f'Required status check "{name}" is expected.'
    if rules.resolved and any(thread.resolved_by is None for thread in pull.threads):
        return "A conversation must be resolved before this pull request can be merged."
    return None


def latest_opinions(pull: GitHubPullRequest) -> list[GitHubReview]:
    """Return each reviewer's last approval or request for changes."""
    last: dict[str, GitHubReview] = {}
    for review in pull.reviews:
        if review.state in ("APPROVED", "CHANGES_REQUESTED", "DISMISSED"):
            last[review.user.login] = review
    return [review for review in last.values() if review.state != "DISMISSED"]


def review_decision(pull: GitHubPullRequest) -> str | None:
    """Return GraphQL's reviewDecision; None if the branch requires no review, as on GitHub."""
    if not protection(pull).approvals:
        return None
    counted = [review for review in latest_opinions(pull) if may_push(pull.repo, review.user)]
    if any(review.state == "CHANGES_REQUESTED" for review in counted):
        return "CHANGES_REQUESTED"
    return "APPROVED" if len(counted) >= protection(pull).approvals else "REVIEW_REQUIRED"


def suites(repo: Repo, sha: str) -> list[CheckSuite]:
    return [suite for suite in repo.suites if suite.head_sha == sha]


def check_runs(repo: Repo, sha: str, *, every: bool = False) -> list[GitHubCheckRun]:
    """Return the commit's check runs; replaced ones only with `every`."""
    return [run for suite in suites(repo, sha) for run in suite.runs if every or not run.replaced]


def statuses(repo: Repo, sha: str) -> list[CommitStatus]:
    """Return the last status of each context."""
    last = {status.context: status for status in repo.statuses if status.sha == sha}
    return list(last.values())


def has_check_passed(repo: Repo, sha: str, name: str) -> bool:
    runs = [run for run in check_runs(repo, sha) if run.name == name]
    matching_statuses = [status for status in statuses(repo, sha) if status.context == name]
    return (
        bool(runs or matching_statuses)
        and all(run.conclusion in _PASSED_CONCLUSIONS for run in runs)
        and all(status.state == "success" for status in matching_statuses)
    )


def has_check_failed(repo: Repo, sha: str, name: str) -> bool:
    has_failed_run = any(
        run.name == name and run.conclusion and run.conclusion not in _PASSED_CONCLUSIONS
        for run in check_runs(repo, sha)
    )
    return has_failed_run or any(
        status.context == name and status.state in ("failure", "error") for status in statuses(repo, sha)
    )


def rollup(repo: Repo, sha: str) -> str | None:
    """Return GraphQL's statusCheckRollup state, or None without checks."""
    states = [status.state.upper() for status in statuses(repo, sha)]
    ends = [run.conclusion for run in check_runs(repo, sha)]
    states += ["PENDING" if end is None else "SUCCESS" if end in _PASSED_CONCLUSIONS else "FAILURE" for end in ends]
    for state in ("ERROR", "FAILURE", "PENDING"):
        if state in states:
            return state
    return "SUCCESS" if states else None


def combined_status(repo: Repo, sha: str) -> str:
    states = {status.state for status in statuses(repo, sha)}
    if states & {"failure", "error"}:
        return "failure"
    return "success" if states == {"success"} else "pending"


def suite_state(suite: CheckSuite) -> tuple[str, str | None]:
    runs = [run for run in suite.runs if not run.replaced]
    if suite.workflow and suite.workflow.waits_for_approval:
        return "completed", "action_required"
    if not runs:
        return "queued", None
    if any(run.status != "completed" for run in runs):
        return ("in_progress" if any(run.status != "queued" for run in runs) else "queued"), None
    for conclusion in ("failure", "timed_out", "cancelled", "action_required"):
        if any(run.conclusion == conclusion for run in runs):
            return "completed", conclusion
    return "completed", "success" if any(run.conclusion == "success" for run in runs) else runs[0].conclusion


def pulls_of(repo: Repo, sha: str) -> list[GitHubPullRequest]:
    return [pull for pull in repo.pulls() if pull.head_sha == sha and pull.state == "open"]


def is_visible(repo: Repo, user: GitHubUser | None) -> bool:
    return permission(repo, user) != "none"
