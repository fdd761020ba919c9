"""What follows from the state: who someone is to a repository, whether a pull request may land and why not."""

from __future__ import annotations

from agent_orchestrator.testing.forge import bare
from agent_orchestrator.testing.github.state import CheckRun, CheckSuite, Protection, Pull, Repo, Review, Status, User

_GOOD = {"success", "neutral", "skipped"}


def permission(repo: Repo, user: User | None) -> str:
    """admin, write, triage, read or none."""
    if user is None:
        return "none" if repo.private else "read"
    if user is repo.owner or user.login in repo.owner.members:
        return "admin"
    return repo.people.get(user.login, "none" if repo.private else "read")


def may_push(repo: Repo, user: User | None) -> bool:
    return permission(repo, user) in ("admin", "write")


def may_triage(repo: Repo, user: User | None) -> bool:
    return permission(repo, user) in ("admin", "write", "triage")


def association(repo: Repo, user: User, said: str | None = None) -> str:
    if said:
        return said
    if user is repo.owner:
        return "OWNER"
    if user.login in repo.owner.members:
        return "MEMBER"
    if user.login in repo.people:
        return "COLLABORATOR"
    if any(pull.merged and pull.user is user for pull in repo.pulls()):
        return "CONTRIBUTOR"
    return "FIRST_TIME_CONTRIBUTOR" if any(pull.user is user for pull in repo.pulls()) else "NONE"


def protection(pull: Pull) -> Protection:
    return pull.repo.protections.get(pull.base_ref, Protection())


def base_sha(pull: Pull) -> str:
    """The base as it is now; of a pull request that has landed, as it was before."""
    return pull.base_sha if pull.merged else pull.repo.head(pull.base_ref) or pull.base_sha


def mergeable(pull: Pull, *, ask: bool = True) -> bool | None:
    """None as long as it is not known. Asking is what makes it known, as on the real one."""
    if pull.state != "open":
        return None
    if pull.unknown_left > 0:
        pull.unknown_left -= ask
        return None
    return bare.merge_tree(pull.repo.path, base_sha(pull), pull.head_sha) is not None


def merge_state(pull: Pull, can: bool | None) -> str:
    """GraphQL's mergeStateStatus, given whether it can be merged at all."""
    rules = protection(pull)
    if pull.state != "open" or can is None:
        return "UNKNOWN"
    if not can:
        return "DIRTY"
    if pull.draft:
        return "DRAFT"
    if missing(pull):
        return "BLOCKED"
    if rules.strict and not bare.contains(pull.repo.path, base_sha(pull), pull.head_sha):
        return "BEHIND"
    if rollup(pull.repo, pull.head_sha) in ("FAILURE", "ERROR", "PENDING"):
        return "UNSTABLE"
    return "CLEAN"


def missing(pull: Pull) -> str | None:
    """What the branch's protection still asks for, in the forge's words."""
    rules = protection(pull)
    decision = review_decision(pull)
    if decision == "CHANGES_REQUESTED":
        return "Changes have been requested."
    if decision == "REVIEW_REQUIRED":
        return f"At least {rules.approvals} approving review is required by reviewers with write access."
    for name in rules.checks:
        if not check_green(pull.repo, pull.head_sha, name):
            return f'Required status check "{name}" is expected.'
    if rules.resolved and any(thread.resolved_by is None for thread in pull.threads):
        return "A conversation must be resolved before this pull request can be merged."
    return None


def opinions(pull: Pull) -> list[Review]:
    """Each reviewer's last review that says yes or no."""
    last: dict[str, Review] = {}
    for review in pull.reviews:
        if review.state in ("APPROVED", "CHANGES_REQUESTED", "DISMISSED"):
            last[review.user.login] = review
    return [review for review in last.values() if review.state != "DISMISSED"]


def review_decision(pull: Pull) -> str | None:
    """Nothing where the branch asks for no review, whatever people said: so does the real one."""
    if not protection(pull).approvals:
        return None
    counted = [review for review in opinions(pull) if may_push(pull.repo, review.user)]
    if any(review.state == "CHANGES_REQUESTED" for review in counted):
        return "CHANGES_REQUESTED"
    return "APPROVED" if len(counted) >= protection(pull).approvals else "REVIEW_REQUIRED"


def suites(repo: Repo, sha: str) -> list[CheckSuite]:
    return [suite for suite in repo.suites if suite.head_sha == sha]


def check_runs(repo: Repo, sha: str, *, every: bool = False) -> list[CheckRun]:
    """The commit's check runs; of those run again only the last, unless all are wanted."""
    return [run for suite in suites(repo, sha) for run in suite.runs if every or not run.replaced]


def statuses(repo: Repo, sha: str) -> list[Status]:
    """Each context's last word."""
    last = {status.context: status for status in repo.statuses if status.sha == sha}
    return list(last.values())


def check_green(repo: Repo, sha: str, name: str) -> bool:
    runs = [run for run in check_runs(repo, sha) if run.name == name]
    words = [status for status in statuses(repo, sha) if status.context == name]
    return (
        bool(runs or words)
        and all(run.conclusion in _GOOD for run in runs)
        and all(word.state == "success" for word in words)
    )


def check_red(repo: Repo, sha: str, name: str) -> bool:
    bad = any(run.name == name and run.conclusion and run.conclusion not in _GOOD for run in check_runs(repo, sha))
    return bad or any(word.context == name and word.state in ("failure", "error") for word in statuses(repo, sha))


def rollup(repo: Repo, sha: str) -> str | None:
    """GraphQL's statusCheckRollup state: nothing where there are no checks at all."""
    words = [status.state.upper() for status in statuses(repo, sha)]
    ends = [run.conclusion for run in check_runs(repo, sha)]
    words += ["PENDING" if end is None else "SUCCESS" if end in _GOOD else "FAILURE" for end in ends]
    for state in ("ERROR", "FAILURE", "PENDING"):
        if state in words:
            return state
    return "SUCCESS" if words else None


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


def pulls_of(repo: Repo, sha: str) -> list[Pull]:
    return [pull for pull in repo.pulls() if pull.head_sha == sha and pull.state == "open"]


def visible(repo: Repo, user: User | None) -> bool:
    return permission(repo, user) != "none"
