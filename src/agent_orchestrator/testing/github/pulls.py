"""Changes to pull requests: open, edit, mark ready, close; and the effects of a push on them."""

from __future__ import annotations

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.github import issues, rules
from agent_orchestrator.testing.github.state import GitHubPullRequest, GitHubUser, Repo
from agent_orchestrator.testing.github.world import GitHubRefused, GitHubWorld, validation_error


def open_pull(
    world: GitHubWorld, repo: Repo, user: GitHubUser, head: str, base: str, title: str, body: str | None = None, draft: bool = False,
    head_repo: Repo | None = None,
) -> GitHubPullRequest:  # fmt: skip
    """Open a pull request; `head` is a branch of the repository, or `owner:branch` of a fork."""
    source, branch = _source(world, repo, head, head_repo)
    sha, target = source.head(branch) if source else None, repo.head(base)
    if source is None or sha is None:
        raise validation_error("PullRequest", "head")
    if target is None:
        raise validation_error("PullRequest", "base")
    if any(p.state == "open" and (p.head_repo, p.head_ref, p.base_ref) == (source, branch, base) for p in repo.pulls()):
        owner = source.owner.login
        raise GitHubRefused(422, "Validation Failed", [
            {"resource": "PullRequest", "code": "custom", "message": f"A pull request already exists for {owner}:{branch}."}
        ])  # fmt: skip
    bare_repository.import_commit(repo.path, source.path, sha, f"refs/pull/{repo.next_number}/head")
    if not bare_repository.commits(repo.path, target, sha):
        raise GitHubRefused(422, "Validation Failed", [
            {"resource": "PullRequest", "code": "custom", "message": f"No commits between {base} and {branch}"}
        ])  # fmt: skip
    pull = world.add_record(GitHubPullRequest(
        **world.record_fields("PR"), repo=repo, number=repo.next_number, user=user, title=title, body=body, head_repo=source,
        head_ref=branch,
        head_sha=sha, base_ref=base, base_sha=target, draft=draft, unknown_left=world.unknown_first,
    ))  # fmt: skip
    repo.next_number += 1
    repo.issues[pull.number] = pull
    world.emit_issue_event(pull, "opened", user)
    if source is not repo and repo.ci:
        repo.ci(repo, sha)
    return pull


def _source(world: GitHubWorld, repo: Repo, head: str, head_repo: Repo | None) -> tuple[Repo | None, str]:
    owner, colon, branch = head.partition(":")
    if head_repo:
        return head_repo, branch or head
    if not colon or owner.lower() == repo.owner.login.lower():
        return repo, branch or head
    forks = [
        other for other in world.repos.values() if other.parent is repo and other.owner.login.lower() == owner.lower()
    ]
    return (forks[0] if forks else None), branch


def edit(
    world: GitHubWorld, pull: GitHubPullRequest, user: GitHubUser, title: str | None, body: str | None, base: str | None
) -> None:
    if base and base != pull.base_ref:
        if pull.repo.head(base) is None:
            raise validation_error("PullRequest", "base")
        before, old_sha = pull.base_ref, rules.base_sha(pull)
        pull.base_ref, pull.base_sha = base, pull.repo.head(base) or ""
        pull.auto_merge = None
        pull.unknown_left = world.unknown_first
        world.touch(pull)
        world.emit_issue_event(
            pull, "edited", user, changes={"base": {"ref": {"from": before}, "sha": {"from": old_sha}}}
        )
    issues.edit(world, pull, user, title, body)


def set_state(world: GitHubWorld, pull: GitHubPullRequest, user: GitHubUser, state: str) -> None:
    if state == pull.state:
        return
    if state == "open":
        head = pull.head_repo.head(pull.head_ref) if pull.head_repo else None
        if pull.merged or head is None:
            raise GitHubRefused(422, "Validation Failed", [
                {"resource": "PullRequest", "code": "custom", "field": "state", "message": "state cannot be changed."}
            ])  # fmt: skip
        pull.head_deleted, pull.head_sha = False, head
        bare_repository.import_commit(
            pull.repo.path,
            pull.head_repo.path if pull.head_repo else pull.repo.path,
            head,
            f"refs/pull/{pull.number}/head",
        )
    pull.auto_merge = pull.queue = None
    issues.set_state(world, pull, user, state)


def set_draft(world: GitHubWorld, pull: GitHubPullRequest, user: GitHubUser, draft: bool) -> None:
    if pull.draft == draft:
        return
    pull.draft = draft
    world.touch(pull)
    world.emit_issue_event(pull, "converted_to_draft" if draft else "ready_for_review", user)
    world.merge_ready(pull.repo)


def update_branch(world: GitHubWorld, pull: GitHubPullRequest, user: GitHubUser, expected: str | None) -> None:
    """Merge the base into the head branch."""
    if expected and expected != pull.head_sha:
        raise GitHubRefused(422, "expected head sha didn't match current head ref.")
    base, source = rules.base_sha(pull), pull.head_repo or pull.repo
    if bare_repository.is_ancestor(pull.repo.path, base, pull.head_sha):
        raise GitHubRefused(422, "There are no new commits on the base branch.")
    try:
        message = f"Merge branch '{pull.base_ref}' into {pull.head_ref}"
        merge_commit = bare_repository.merge_commit(pull.repo.path, pull.head_sha, base, "merge", message, user.login)
    except bare_repository.BareGitFailed:
        raise GitHubRefused(422, "merge conflict between base and head") from None
    bare_repository.import_commit(source.path, pull.repo.path, merge_commit, f"refs/heads/{pull.head_ref}")
    process_ref_changes(world, source, user)


def process_ref_changes(world: GitHubWorld, repo: Repo, user: GitHubUser) -> None:
    """Process the refs that a push or merge has changed: emit events, update pull requests, run CI."""
    now = bare_repository.refs(repo.path)
    before, repo.refs = repo.refs, now
    moved = [ref for ref in {**before, **now} if before.get(ref) != now.get(ref)]
    if not moved:
        return
    repo.pushed_at = world.now()
    for ref in moved:
        if not ref.startswith("refs/heads/gh-readonly-queue/"):
            _emit_push(world, repo, user, ref, before.get(ref), now.get(ref))
    for ref in moved:
        if ref.startswith("refs/heads/"):
            _process_branch_change(world, repo, user, ref.removeprefix("refs/heads/"), before.get(ref), now.get(ref))
    for ref in moved:
        if repo.ci and ref.startswith("refs/heads/") and now.get(ref):
            repo.ci(repo, now[ref])
    for concerned in (repo, repo.parent):
        if concerned:
            world.merge_ready(concerned)


def _process_branch_change(
    world: GitHubWorld, repo: Repo, user: GitHubUser, branch: str, old: str | None, new: str | None
) -> None:
    related = [pull for other in world.repos.values() for pull in other.pulls() if pull.state == "open"]
    for pull in related:
        if pull.head_repo is repo and pull.head_ref == branch:
            if new is None:
                pull.head_deleted = True
                set_state(world, pull, user, "closed")
            elif new != pull.head_sha:
                _process_head_change(world, pull, user, old or pull.head_sha, new)
        if pull.repo is repo and pull.base_ref == branch and new is not None and pull.state == "open":
            pull.unknown_left = world.unknown_first


def _process_head_change(world: GitHubWorld, pull: GitHubPullRequest, user: GitHubUser, old: str, new: str) -> None:
    source = pull.head_repo or pull.repo
    bare_repository.import_commit(pull.repo.path, source.path, new, f"refs/pull/{pull.number}/head")
    pull.head_sha, pull.unknown_left = new, world.unknown_first
    if not rules.may_push(pull.repo, user):  # pushes by people with write access keep auto-merge on
        pull.auto_merge = None
    for thread in pull.threads:
        if not thread.outdated and bare_repository.has_line_changed(
            pull.repo.path, thread.original_commit, new, thread.path, thread.original_line
        ):
            thread.outdated, thread.line = True, None
        elif not thread.outdated:
            for comment in thread.comments:
                comment.commit_id = new
    world.touch(pull)
    world.emit_issue_event(pull, "synchronize", user, before=old, after=new)
    if source is not pull.repo and pull.repo.ci:
        pull.repo.ci(pull.repo, new)


def _emit_push(world: GitHubWorld, repo: Repo, user: GitHubUser, ref: str, old: str | None, new: str | None) -> None:
    show = world.shapes
    shas = bare_repository.commits(repo.path, old, new)[-20:] if old and new else (new,) if new else ()
    world.emit(
        repo, "push", user, ref=ref, before=old or bare_repository.NO_COMMIT, after=new or bare_repository.NO_COMMIT,
        created=old is None, deleted=new is None,
        forced=bool(old and new and not bare_repository.is_ancestor(repo.path, old, new)), base_ref=None,
        compare=f"{show.repo_page(repo)}/compare/{(old or bare_repository.NO_COMMIT)[:12]}...{(new or bare_repository.NO_COMMIT)[:12]}",
        commits=[show.pushed_commit(repo, sha) for sha in shas], head_commit=show.pushed_commit(repo, new) if new else None,
        pusher={"name": user.login, "email": f"{user.login}@users.noreply.github.com"},
    )  # fmt: skip
