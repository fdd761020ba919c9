"""Merges with real commits: by each method, pinned to a commit; auto-merge; the merge queue."""

from __future__ import annotations

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.github import issues, pulls, rules
from agent_orchestrator.testing.github.state import AutoMerge, GitHubPullRequest, GitHubUser, QueueEntry, Repo
from agent_orchestrator.testing.github.world import GitHubRefused, GitHubWorld


def merge(
    world: GitHubWorld, pull: GitHubPullRequest, user: GitHubUser, method: str = "merge", sha: str | None = None, title: str | None = None,
    message: str | None = None,
) -> str:  # fmt: skip
    """Merge a pull request and return the commit; raise `GitHubRefused` if it is not allowed."""
    world.require_push(pull.repo, user)
    if method not in pull.repo.methods:
        names = {"merge": "Merge commits", "squash": "Squash merges", "rebase": "Rebase merges"}
        raise GitHubRefused(405, f"{names.get(method, method)} are not allowed on this repository.")
    if pull.state != "open":
        raise GitHubRefused(405, "Pull Request is not mergeable")
    if sha and sha != pull.head_sha:
        raise GitHubRefused(409, "Head branch was modified. Review and try the merge again.")
    if pull.draft:
        raise GitHubRefused(405, "Pull Request is still a draft")
    if bare_repository.merge_tree(pull.repo.path, rules.base_sha(pull), pull.head_sha) is None:
        raise GitHubRefused(405, "Pull Request has merge conflicts")
    if rules.protection(pull).merge_queue:
        raise GitHubRefused(405, "Changes must be made through the merge queue")
    if reason := rules.unmet_requirement(pull):
        raise GitHubRefused(405, reason)
    if rules.merge_state(pull, True) == "BEHIND":
        raise GitHubRefused(405, "Head branch is not up to date with the base branch.")
    return _merge_now(world, pull, user, method, title, message)


def _merge_now(
    world: GitHubWorld, pull: GitHubPullRequest, user: GitHubUser, method: str, title: str | None, message: str | None
) -> str:
    base = rules.base_sha(pull)
    try:
        commit = bare_repository.merge_commit(
            pull.repo.path, base, pull.head_sha, method, _commit_message(pull, method, title, message), pull.user.login
        )
    except bare_repository.BareGitFailed:
        raise GitHubRefused(405, "Pull Request is not mergeable") from None
    bare_repository.set_ref(pull.repo.path, f"refs/heads/{pull.base_ref}", commit, base)
    mark_merged(world, pull, user, base, commit)
    return commit


def _commit_message(pull: GitHubPullRequest, method: str, title: str | None, message: str | None) -> str:
    if method == "squash":
        return f"{title or f'{pull.title} (#{pull.number})'}\n\n{message if message is not None else pull.body or ''}".strip()
    owner = (pull.head_repo or pull.repo).owner.login
    return f"{title or f'Merge pull request #{pull.number} from {owner}/{pull.head_ref}'}\n\n{message or pull.title}"


def mark_merged(world: GitHubWorld, pull: GitHubPullRequest, user: GitHubUser, base: str, commit: str) -> None:
    """Mark a pull request as merged, after its base has moved to a commit that contains it."""
    pull.base_sha, pull.merge_commit = base, commit
    pull.state, pull.merged_at, pull.merged_by = "closed", world.now(), user
    pull.closed_at, pull.closed_by, pull.auto_merge, pull.queue = pull.merged_at, user, None, None
    world.touch(pull)
    world.emit_issue_event(pull, "closed", user)
    issues.close_named(world, pull, user)
    if pull.repo.delete_branch_on_merge and pull.head_repo is pull.repo and pull.repo.head(pull.head_ref):
        bare_repository.delete_ref(pull.repo.path, f"refs/heads/{pull.head_ref}")
    pulls.process_ref_changes(world, pull.repo, user)


def enable_auto_merge(
    world: GitHubWorld,
    pull: GitHubPullRequest,
    user: GitHubUser,
    method: str,
    title: str | None = None,
    message: str | None = None,
) -> None:
    world.require_push(pull.repo, user)
    if not pull.repo.allow_auto_merge:
        raise GitHubRefused(422, "Pull request Auto merge is not allowed for this repository")
    if pull.state != "open" or pull.merged:
        raise GitHubRefused(422, "Pull request is not open")
    state = rules.merge_state(pull, rules.mergeable(pull, ask=False))
    if state in ("CLEAN", "UNSTABLE") and not rules.protection(pull).merge_queue:
        raise GitHubRefused(422, f"Pull request Pull request is in {state.lower()} status")
    pull.auto_merge = AutoMerge(user, method, title, message, world.now())
    world.touch(pull)
    world.emit_issue_event(pull, "auto_merge_enabled", user, reason="")
    merge_ready(world, pull.repo)


def disable_auto_merge(world: GitHubWorld, pull: GitHubPullRequest, user: GitHubUser) -> None:
    if pull.auto_merge is None:
        raise GitHubRefused(422, "Can't disable auto-merge for this pull request")
    pull.auto_merge = None
    world.touch(pull)
    world.emit_issue_event(pull, "auto_merge_disabled", user, reason="manual")


def enqueue(world: GitHubWorld, pull: GitHubPullRequest, user: GitHubUser, sha: str | None = None) -> QueueEntry:
    world.require_push(pull.repo, user)
    if not rules.protection(pull).merge_queue:
        raise GitHubRefused(422, "Pull request is not in a repository with a merge queue")
    if sha and sha != pull.head_sha:
        raise GitHubRefused(422, "The head of the pull request is not at the expected commit")
    if pull.state != "open" or pull.draft:
        raise GitHubRefused(422, "Pull request is not open, or a draft")
    if reason := rules.unmet_requirement(pull):
        raise GitHubRefused(422, reason)
    if pull.queue is not None:
        return pull.queue
    entry = pull.queue = world.add_record(
        QueueEntry(**world.record_fields("MQE"), pull=pull, by=user, queued_head=pull.head_sha)
    )
    world.touch(pull)
    world.emit_issue_event(pull, "enqueued", user)
    merge_ready(world, pull.repo)
    return entry


def dequeue(world: GitHubWorld, pull: GitHubPullRequest, user: GitHubUser, reason: str = "MANUAL") -> None:
    entry, pull.queue = pull.queue, None
    if entry is None:
        return
    _drop_group(world, entry, user, "dequeued")
    world.touch(pull)
    world.emit_issue_event(pull, "dequeued", user, reason=reason)


def merge_ready(world: GitHubWorld, repo: Repo) -> None:
    """Merge every pull request of this repository that is ready: those pushed to their base by hand, the front of each queue, then
    those with auto-merge."""
    for pull in repo.pulls():
        base = repo.head(pull.base_ref)
        if pull.state == "open" and base and bare_repository.is_ancestor(repo.path, pull.head_sha, base):
            mark_merged(world, pull, repo.owner, pull.base_sha, base)
        elif pull.queue and pull.queue.queued_head != pull.head_sha:
            dequeue(world, pull, pull.queue.by, "BRANCH_UPDATED")
    for branch, protection in list(repo.protections.items()):
        if protection.merge_queue:
            while _advance_queue(world, repo, branch):
                pass
    for pull in repo.pulls():
        if pull.state != "open" or pull.auto_merge is None or pull.draft or rules.unmet_requirement(pull):
            continue
        auto = pull.auto_merge
        if rules.merge_state(pull, rules.mergeable(pull, ask=False)) not in ("CLEAN", "UNSTABLE"):
            continue
        if rules.protection(pull).merge_queue:
            if pull.queue is None:
                enqueue(world, pull, auto.by)
        else:
            _merge_now(world, pull, auto.by, auto.method, auto.title, auto.message)


def _advance_queue(world: GitHubWorld, repo: Repo, branch: str) -> bool:
    """Process the front of a queue; return True if another entry became the front."""
    queue = sorted(
        (pull.queue for pull in repo.pulls() if pull.queue and pull.base_ref == branch), key=lambda entry: entry.id
    )
    if not queue:
        return False
    entry = queue[0]
    base = repo.head(branch) or ""
    if entry.base_sha != base:
        _drop_group(world, entry, entry.by, "invalidated")
        if not _make_group(world, entry, base):
            dequeue(world, entry.pull, entry.by, "MERGE_CONFLICT")
            return True
    if entry.pull.queue is not entry:
        return True
    names = repo.protections[branch].checks
    if any(rules.has_check_failed(repo, entry.head_sha, name) for name in names):
        dequeue(world, entry.pull, entry.by, "CI_FAILURE")
        return True
    if not all(rules.has_check_passed(repo, entry.head_sha, name) for name in names):
        return False
    bare_repository.set_ref(repo.path, f"refs/heads/{branch}", entry.head_sha, base)
    _drop_group(world, entry, entry.by, "merged")
    mark_merged(world, entry.pull, entry.by, base, entry.head_sha)
    return True


def _make_group(world: GitHubWorld, entry: QueueEntry, base: str) -> bool:
    """Create the commit of the base with the pull request, on which checks run; return False on a conflict."""
    pull, repo = entry.pull, entry.pull.repo
    try:
        commit = bare_repository.merge_commit(
            repo.path,
            base,
            pull.head_sha,
            "merge",
            _commit_message(pull, "merge", None, None),
            pull.user.login,
            entry.id,
        )
    except bare_repository.BareGitFailed:
        return False
    entry.base_sha, entry.head_sha, entry.state = base, commit, "AWAITING_CHECKS"
    entry.ref = f"refs/heads/gh-readonly-queue/{pull.base_ref}/pr-{pull.number}-{base}"
    bare_repository.set_ref(repo.path, entry.ref, commit)
    repo.refs[entry.ref] = commit
    world.emit(repo, "merge_group", entry.by, action="checks_requested", merge_group=_group(world, entry))
    if repo.ci:
        repo.ci(repo, commit)
    return True


def _drop_group(world: GitHubWorld, entry: QueueEntry, user: GitHubUser, reason: str) -> None:
    if not entry.ref:
        return
    repo = entry.pull.repo
    world.emit(repo, "merge_group", user, action="destroyed", reason=reason, merge_group=_group(world, entry))
    bare_repository.set_ref(repo.path, f"refs/ao/groups/{entry.id}", entry.head_sha)
    bare_repository.delete_ref(repo.path, entry.ref)
    repo.refs.pop(entry.ref, None)
    entry.ref = ""


def _group(world: GitHubWorld, entry: QueueEntry) -> dict[str, object]:
    repo = entry.pull.repo
    return {
        "head_sha": entry.head_sha, "head_ref": entry.ref, "base_ref": f"refs/heads/{entry.pull.base_ref}",
        "base_sha": entry.base_sha, "head_commit": world.shapes.simple_commit(repo, entry.head_sha),
    }  # fmt: skip
