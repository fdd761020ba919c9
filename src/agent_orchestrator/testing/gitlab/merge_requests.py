"""Changes to merge requests: open, approve, merge, merge trains; and the effects of a push on them."""

from __future__ import annotations

import re
from typing import Any

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.gitlab import rules
from agent_orchestrator.testing.gitlab.pipelines import create_pipeline, use_existing_pipeline
from agent_orchestrator.testing.gitlab.state import GitLabMergeRequest, GitLabProject, GitLabRefused, GitLabUser, Train
from agent_orchestrator.testing.gitlab.world import GitLabWorld

_CLOSES = re.compile(r"\b(?:clos(?:e[sd]?|ing)|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)):? #(\d+)", re.IGNORECASE)


def open_merge_request(
    world: GitLabWorld, project: GitLabProject, user: GitLabUser, branch: str, base: str, title: str, body: str | None = None,
    source: GitLabProject | None = None, **fields: Any,
) -> GitLabMergeRequest:  # fmt: skip
    origin = source or project
    if rules.access_level(origin, user) < rules.DEVELOPER:
        raise GitLabRefused(403, "403 Forbidden")
    sha, target = origin.head(branch), project.head(base)
    if sha is None:
        raise GitLabRefused(
            422, ["Source branch is missing"] if source else [f'Source branch "{branch}" does not exist']
        )
    if target is None:
        raise GitLabRefused(422, [f'Target branch "{base}" does not exist'])
    for existing in project.merge_requests.values():
        if existing.state == "opened" and (existing.source, existing.branch, existing.base) == (origin, branch, base):
            raise GitLabRefused(
                409, [f"Another open merge request already exists for this source branch: !{existing.iid}"]
            )
    iid = max(project.merge_requests, default=0) + 1
    bare_repository.import_commit(project.path, origin.path, sha, f"refs/merge-requests/{iid}/head")
    created = GitLabMergeRequest(
        **world.record_fields(), project=project, iid=iid, author=user, title=title, body=body, source=origin, branch=branch, base=base,
        head_sha=sha, base_sha=bare_repository.merge_base(project.path, target, sha), unknown_left=world.unknown_first, **fields,
    )  # fmt: skip
    project.merge_requests[iid] = created
    use_existing_pipeline(created)
    world.emit_issue_event(created, user, "open")
    return created


def approve(world: GitLabWorld, merge_request: GitLabMergeRequest, user: GitLabUser, sha: str | None = None) -> None:
    if sha and sha != merge_request.head_sha:
        raise GitLabRefused(409, "SHA does not match HEAD of source branch")
    if (
        merge_request.state != "opened"
        or user.login in merge_request.approvals
        or rules.access_level(merge_request.project, user) < rules.DEVELOPER
    ):
        raise GitLabRefused(401, "401 Unauthorized")
    merge_request.approvals[user.login] = world.now()
    merge_request.reviewers[user.login] = "approved"
    world.add_system_note(merge_request, user, "approved this merge request")
    enough = len(merge_request.approvals) >= merge_request.project.approvals_required
    world.emit_issue_event(merge_request, user, "approved" if enough else "approval")
    merge_ready(world, merge_request.project)


def unapprove(world: GitLabWorld, merge_request: GitLabMergeRequest, user: GitLabUser) -> None:
    if merge_request.approvals.pop(user.login, None) is None:
        raise GitLabRefused(404, "404 Not Found")
    merge_request.reviewers[user.login] = "unapproved"
    world.add_system_note(merge_request, user, "unapproved this merge request")
    world.emit_issue_event(merge_request, user, "unapproved")


def request_changes(world: GitLabWorld, merge_request: GitLabMergeRequest, user: GitLabUser) -> None:
    merge_request.approvals.pop(user.login, None)
    merge_request.reviewers[user.login] = "requested_changes"
    world.add_system_note(merge_request, user, "requested changes")
    world.emit_issue_event(merge_request, user, "update", {"reviewers": {"previous": [], "current": []}})


def request_review(
    world: GitLabWorld, merge_request: GitLabMergeRequest, user: GitLabUser, people: list[GitLabUser]
) -> None:
    reviewers = {person.login: merge_request.reviewers.get(person.login, "unreviewed") for person in people}
    if reviewers != merge_request.reviewers:
        merge_request.reviewers = reviewers
        names = " and ".join(f"@{person.login}" for person in people)
        world.add_system_note(
            merge_request, user, f"requested review from {names}" if names else "removed review requests"
        )
        world.emit_issue_event(merge_request, user, "update", {"reviewers": {"previous": [], "current": []}})


def merge(world: GitLabWorld, merge_request: GitLabMergeRequest, user: GitLabUser, options: dict[str, Any]) -> None:
    """Merge now, or enable auto-merge if requested; raise `GitLabRefused` if it is not allowed."""
    if rules.access_level(merge_request.project, user) < rules.DEVELOPER:
        raise GitLabRefused(401, "401 Unauthorized")
    if options.get("sha") and options["sha"] != merge_request.head_sha:
        raise GitLabRefused(409, "SHA does not match HEAD of source branch")
    status = rules.detailed_merge_status(merge_request, rules.merge_status(merge_request, ask=False))
    is_automatic = options.get("auto_merge") or options.get("merge_when_pipeline_succeeds")
    pipeline = merge_request.head_pipeline
    is_running = pipeline and pipeline.sha == merge_request.head_sha and pipeline.status not in rules.ENDED_STATUSES
    waiting_states = (
        "ci_still_running",
        "ci_must_pass",
        "not_approved",
        "discussions_not_resolved",
        "requested_changes",
    )
    if (
        is_automatic
        and merge_request.state == "opened"
        and not merge_request.draft
        and (status in waiting_states or (status == "mergeable" and is_running))
    ):
        merge_request.auto_merge, merge_request.auto_merge_by = dict(options), user
        world.add_system_note(merge_request, user, "enabled an automatic merge when all merge checks pass")
        world.emit_issue_event(merge_request, user, "update")
        return
    if status in (
        "not_open",
        "draft_status",
        "ci_must_pass",
        "ci_still_running",
        "discussions_not_resolved",
        "not_approved",
        "requested_changes",
    ):
        raise GitLabRefused(405, "405 Method Not Allowed")
    if status != "mergeable":
        raise GitLabRefused(422, "Branch cannot be merged")
    if options.get("squash") and merge_request.project.squash_option == "never":
        raise GitLabRefused(405, "405 Method Not Allowed")
    _merge_now(world, merge_request, user, options)


def _merge_now(
    world: GitLabWorld, merge_request: GitLabMergeRequest, user: GitLabUser, options: dict[str, Any]
) -> None:
    project, path = merge_request.project, merge_request.project.path
    base = project.head(merge_request.base) or ""
    squash = bool(options.get("squash", merge_request.squash)) or project.squash_option == "always"
    head, author = merge_request.head_sha, merge_request.author.login
    try:
        if squash:
            message = options.get("squash_commit_message") or merge_request.title
            head = merge_request.squash_commit = bare_repository.merge_commit(
                path, base, merge_request.head_sha, "squash", message, author
            )
        elif project.merge_method == "rebase_merge":
            head = bare_repository.merge_commit(path, base, merge_request.head_sha, "rebase", "", author)
        commit = head
        if project.merge_method != "ff" and not squash:
            message = (
                options.get("merge_commit_message")
                or f"Merge branch '{merge_request.branch}' into '{merge_request.base}'\n\n{merge_request.title}"
            )
            commit = merge_request.merge_commit = bare_repository.merge_commit(
                path, base, head, "merge", message, author
            )
    except bare_repository.BareGitFailed:
        merge_request.squash_commit = None
        raise GitLabRefused(422, "Branch cannot be merged") from None
    bare_repository.set_ref(path, f"refs/heads/{merge_request.base}", commit, base)
    merge_request.remove_branch = bool(options.get("should_remove_source_branch", merge_request.remove_branch))
    mark_merged(world, merge_request, user)


def mark_merged(world: GitLabWorld, merge_request: GitLabMergeRequest, user: GitLabUser) -> None:
    """Mark a merge request as merged, after its base has moved to a commit that contains it."""
    merge_request.state, merge_request.merged_at, merge_request.merged_by = "merged", world.now(), user
    merge_request.auto_merge, merge_request.train = None, None
    world.touch(merge_request)
    world.emit_issue_event(merge_request, user, "merge")
    if merge_request.base == merge_request.project.default_branch:
        for number in {int(text) for text in _CLOSES.findall(f"{merge_request.title}\n{merge_request.body or ''}")}:
            if issue := merge_request.project.issues.get(number):
                world.set_state(issue, user, "closed")
    source = merge_request.source
    if (
        merge_request.remove_branch
        and source
        and source.head(merge_request.branch) == merge_request.head_sha
        and merge_request.branch not in source.protected
    ):
        bare_repository.delete_ref(source.path, f"refs/heads/{merge_request.branch}")
        if source is not merge_request.project:
            process_ref_changes(world, source, user)
    process_ref_changes(world, merge_request.project, user)


def rebase(world: GitLabWorld, merge_request: GitLabMergeRequest, user: GitLabUser) -> None:
    source = merge_request.source or merge_request.project
    if rules.access_level(source, user) < rules.DEVELOPER:
        raise GitLabRefused(403, "403 Forbidden - Cannot push to source branch")
    base = merge_request.project.head(merge_request.base) or ""
    try:
        rebased = bare_repository.merge_commit(
            merge_request.project.path, base, merge_request.head_sha, "rebase", "", merge_request.author.login
        )
    except bare_repository.BareGitFailed:
        merge_request.merge_error = "Rebase failed. Please rebase locally"
        return
    bare_repository.import_commit(
        source.path, merge_request.project.path, rebased, f"refs/heads/{merge_request.branch}"
    )
    process_ref_changes(world, source, user)


def add_to_train(
    world: GitLabWorld, merge_request: GitLabMergeRequest, user: GitLabUser, options: dict[str, Any]
) -> Train:
    """Add a merge request to the merge train of its base."""
    if not merge_request.project.merge_trains:
        raise GitLabRefused(403, "403 Forbidden")
    if options.get("sha") and options["sha"] != merge_request.head_sha:
        raise GitLabRefused(409, "SHA does not match HEAD of source branch")
    status = rules.detailed_merge_status(merge_request, rules.merge_status(merge_request, ask=False))
    if status != "mergeable":
        raise GitLabRefused(400, "Failed to merge")
    if merge_request.train is None:
        merge_request.train = Train(
            **world.record_fields(), merge_request=merge_request, user=user, squash=bool(options.get("squash"))
        )
        merge_request.auto_merge, merge_request.auto_merge_by = dict(options), user
        world.add_system_note(merge_request, user, "started a merge train")
        world.emit_issue_event(merge_request, user, "update")
        merge_ready(world, merge_request.project)
    return merge_request.train


def _advance_train(world: GitLabWorld, project: GitLabProject) -> bool:
    """Process the front of the merge train; return True if another entry became the front."""
    trains = sorted(
        (merge_request.train for merge_request in project.merge_requests.values() if merge_request.train),
        key=lambda train: train.id,
    )
    for train in trains[:1]:
        merge_request = train.merge_request
        base = project.head(merge_request.base) or ""
        if train.base_sha != base:
            try:
                train.sha = bare_repository.merge_commit(
                    project.path,
                    base,
                    merge_request.head_sha,
                    "merge",
                    f"Merge branch '{merge_request.branch}'",
                    merge_request.author.login,
                )
            except bare_repository.BareGitFailed:
                merge_request.train = merge_request.auto_merge = None
                return True
            train.base_sha = base
            bare_repository.set_ref(project.path, f"refs/merge-requests/{merge_request.iid}/train", train.sha)
            ref = f"refs/merge-requests/{merge_request.iid}/train"
            train.pipeline = create_pipeline(
                world, project, train.sha, ref=ref, source="merge_request_event", of_merge_request=merge_request
            )
            merge_request.head_pipeline = train.pipeline
            if project.ci:
                project.ci(project, train.sha)
        state = train.pipeline.status if train.pipeline else "created"
        if state == "success":
            bare_repository.set_ref(project.path, f"refs/heads/{merge_request.base}", train.sha, base)
            merge_request.merge_commit = train.sha
            mark_merged(world, merge_request, train.user)
            return True
        if state in ("failed", "canceled"):
            merge_request.train = merge_request.auto_merge = None
            world.add_system_note(
                merge_request,
                train.user,
                "removed this merge request from the merge train because the pipeline did not succeed",
            )
            world.emit_issue_event(merge_request, train.user, "update")
            return True
    return False


def merge_ready(world: GitLabWorld, project: GitLabProject) -> None:
    """Merge everything that is ready: what was pushed to its base by hand, the front of the train, then auto-merges."""
    for merge_request in list(project.merge_requests.values()):
        base = project.head(merge_request.base)
        if (
            merge_request.state == "opened"
            and base
            and base != merge_request.base_sha
            and bare_repository.is_ancestor(project.path, merge_request.head_sha, base)
        ):
            mark_merged(world, merge_request, project.creator)
    while _advance_train(world, project):
        pass
    for merge_request in list(project.merge_requests.values()):
        options, by = merge_request.auto_merge, merge_request.auto_merge_by
        if merge_request.state != "opened" or options is None or by is None or merge_request.train:
            continue
        status = rules.detailed_merge_status(
            merge_request, "can_be_merged" if rules.can_be_merged(merge_request) else "cannot_be_merged"
        )
        pipeline = merge_request.head_pipeline
        is_green = (
            pipeline is None or pipeline.sha != merge_request.head_sha or pipeline.status in ("success", "skipped")
        )
        if status == "mergeable" and is_green:
            _merge_now(world, merge_request, by, options)


def process_ref_changes(world: GitLabWorld, project: GitLabProject, user: GitLabUser) -> None:
    """Process the refs that a push or merge has changed: send webhooks, update merge requests, run CI."""
    now = bare_repository.refs(project.path)
    before, project.refs = project.refs, now
    moved = [ref for ref in {**before, **now} if before.get(ref) != now.get(ref) and ref.startswith("refs/heads/")]
    for ref in moved:
        payload = world.payloads.push(project, user, ref, before.get(ref), now.get(ref))
        world.hooks.send_event(project, "Push Hook", payload)
    for ref in moved:
        _process_branch_change(world, project, user, ref.removeprefix("refs/heads/"), before.get(ref), now.get(ref))
    for ref in moved:
        if project.ci and now.get(ref):
            project.ci(project, now[ref])
    if moved:
        world.touch(project)
        for concerned in (project, project.parent):
            if concerned:
                merge_ready(world, concerned)


def _process_branch_change(
    world: GitLabWorld, project: GitLabProject, user: GitLabUser, branch: str, old: str | None, new: str | None
) -> None:
    for other in list(world.projects.values()):
        for merge_request in list(other.merge_requests.values()):
            if merge_request.state != "opened":
                continue
            if (
                merge_request.source is project
                and merge_request.branch == branch
                and new
                and new != merge_request.head_sha
            ):
                _process_head_change(world, merge_request, user, old or merge_request.head_sha, new)
            if merge_request.project is project and merge_request.base == branch:
                merge_request.unknown_left = world.unknown_first


def _process_head_change(
    world: GitLabWorld, merge_request: GitLabMergeRequest, user: GitLabUser, old: str, new: str
) -> None:
    source = merge_request.source or merge_request.project
    bare_repository.import_commit(
        merge_request.project.path, source.path, new, f"refs/merge-requests/{merge_request.iid}/head"
    )
    count = len(bare_repository.commits(merge_request.project.path, old, new))
    merge_request.head_sha, merge_request.unknown_left = new, world.unknown_first
    merge_request.base_sha = bare_repository.merge_base(
        merge_request.project.path, merge_request.project.head(merge_request.base) or "", new
    )
    merge_request.train = merge_request.auto_merge = None
    world.add_system_note(
        merge_request, user, f"added {count} commit{'s' if count != 1 else ''}\n\n<ul><li>{new[:8]}</li></ul>"
    )
    if merge_request.project.reset_approvals_on_push and merge_request.approvals:
        world.add_system_note(
            merge_request, user, "reset approvals from " + ", ".join(f"@{name}" for name in merge_request.approvals)
        )
        merge_request.approvals.clear()
    use_existing_pipeline(merge_request)
    world.emit_issue_event(merge_request, user, "update", oldrev=old)
