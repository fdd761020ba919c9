"""What happens to merge requests: opened, pushed to, approved, landed; and what a push means to all of them."""

from __future__ import annotations

import re
from typing import Any

from agent_orchestrator.testing.forge import bare
from agent_orchestrator.testing.gitlab import ci, rules
from agent_orchestrator.testing.gitlab.state import MergeRequest, Project, Refused, Train, User
from agent_orchestrator.testing.gitlab.world import World

_CLOSES = re.compile(r"\b(?:clos(?:e[sd]?|ing)|fix(?:e[sd]|ing)?|resolv(?:e[sd]?|ing)):? #(\d+)", re.IGNORECASE)


def open_merge_request(
    world: World, project: Project, user: User, branch: str, base: str, title: str, body: str | None = None,
    source: Project | None = None, **more: Any,
) -> MergeRequest:  # fmt: skip
    origin = source or project
    if rules.level(origin, user) < rules.DEVELOPER:
        raise Refused(403, "403 Forbidden")
    sha, target = origin.head(branch), project.head(base)
    if sha is None:
        raise Refused(422, ["Source branch is missing"] if source else [f'Source branch "{branch}" does not exist'])
    if target is None:
        raise Refused(422, [f'Target branch "{base}" does not exist'])
    for one in project.merge_requests.values():
        if one.state == "opened" and (one.source, one.branch, one.base) == (origin, branch, base):
            raise Refused(409, [f"Another open merge request already exists for this source branch: !{one.iid}"])
    iid = max(project.merge_requests, default=0) + 1
    bare.import_commit(project.path, origin.path, sha, f"refs/merge-requests/{iid}/head")
    made = MergeRequest(
        **world.base(), project=project, iid=iid, author=user, title=title, body=body, source=origin, branch=branch, base=base,
        head_sha=sha, base_sha=bare.merge_base(project.path, target, sha), unknown_left=world.unknown_first, **more,
    )  # fmt: skip
    project.merge_requests[iid] = made
    ci.adopt(made)
    world.told(made, user, "open")
    return made


def approve(world: World, one: MergeRequest, user: User, sha: str | None = None) -> None:
    if sha and sha != one.head_sha:
        raise Refused(409, "SHA does not match HEAD of source branch")
    if one.state != "opened" or user.login in one.approvals or rules.level(one.project, user) < rules.DEVELOPER:
        raise Refused(401, "401 Unauthorized")
    one.approvals[user.login] = world.now()
    one.reviewers[user.login] = "approved"
    world.said(one, user, "approved this merge request")
    enough = len(one.approvals) >= one.project.approvals_required
    world.told(one, user, "approved" if enough else "approval")
    settle(world, one.project)


def unapprove(world: World, one: MergeRequest, user: User) -> None:
    if one.approvals.pop(user.login, None) is None:
        raise Refused(404, "404 Not Found")
    one.reviewers[user.login] = "unapproved"
    world.said(one, user, "unapproved this merge request")
    world.told(one, user, "unapproved")


def request_changes(world: World, one: MergeRequest, user: User) -> None:
    one.approvals.pop(user.login, None)
    one.reviewers[user.login] = "requested_changes"
    world.said(one, user, "requested changes")
    world.told(one, user, "update", {"reviewers": {"previous": [], "current": []}})


def request_review(world: World, one: MergeRequest, user: User, people: list[User]) -> None:
    new = {person.login: one.reviewers.get(person.login, "unreviewed") for person in people}
    if new != one.reviewers:
        one.reviewers = new
        names = " and ".join(f"@{person.login}" for person in people)
        world.said(one, user, f"requested review from {names}" if names else "removed review requests")
        world.told(one, user, "update", {"reviewers": {"previous": [], "current": []}})


def merge(world: World, one: MergeRequest, user: User, how: dict[str, Any]) -> None:
    """Land now, or by itself later where that was asked for; or say why not."""
    if rules.level(one.project, user) < rules.DEVELOPER:
        raise Refused(401, "401 Unauthorized")
    if how.get("sha") and how["sha"] != one.head_sha:
        raise Refused(409, "SHA does not match HEAD of source branch")
    status = rules.detailed(one, rules.merge_status(one, ask=False))
    later = how.get("auto_merge") or how.get("merge_when_pipeline_succeeds")
    pipeline = one.head_pipeline
    running = pipeline and pipeline.sha == one.head_sha and pipeline.status not in rules.ENDED
    waits = ("ci_still_running", "ci_must_pass", "not_approved", "discussions_not_resolved", "requested_changes")
    if later and one.state == "opened" and not one.draft and (status in waits or (status == "mergeable" and running)):
        one.auto_merge, one.auto_merge_by = dict(how), user
        world.said(one, user, "enabled an automatic merge when all merge checks pass")
        world.told(one, user, "update")
        return
    if status in ("not_open", "draft_status", "ci_must_pass", "ci_still_running", "discussions_not_resolved", "not_approved",
                  "requested_changes"):  # fmt: skip
        raise Refused(405, "405 Method Not Allowed")
    if status != "mergeable":
        raise Refused(422, "Branch cannot be merged")
    if how.get("squash") and one.project.squash_option == "never":
        raise Refused(405, "405 Method Not Allowed")
    _land(world, one, user, how)


def _land(world: World, one: MergeRequest, user: User, how: dict[str, Any]) -> None:
    project, path = one.project, one.project.path
    base = project.head(one.base) or ""
    squash = bool(how.get("squash", one.squash)) or project.squash_option == "always"
    head, author = one.head_sha, one.author.login
    try:
        if squash:
            words = how.get("squash_commit_message") or one.title
            head = one.squash_commit = bare.merge_commit(path, base, one.head_sha, "squash", words, author)
        elif project.merge_method == "rebase_merge":
            head = bare.merge_commit(path, base, one.head_sha, "rebase", "", author)
        made = head
        if project.merge_method != "ff" and not squash:
            words = how.get("merge_commit_message") or f"Merge branch '{one.branch}' into '{one.base}'\n\n{one.title}"
            made = one.merge_commit = bare.merge_commit(path, base, head, "merge", words, author)
    except bare.GitFailed:
        one.squash_commit = None
        raise Refused(422, "Branch cannot be merged") from None
    bare.set_ref(path, f"refs/heads/{one.base}", made, base)
    one.remove_branch = bool(how.get("should_remove_source_branch", one.remove_branch))
    landed(world, one, user)


def landed(world: World, one: MergeRequest, user: User) -> None:
    """The base holds this merge request now."""
    one.state, one.merged_at, one.merged_by = "merged", world.now(), user
    one.auto_merge, one.train = None, None
    world.touch(one)
    world.told(one, user, "merge")
    if one.base == one.project.default_branch:
        for number in {int(found) for found in _CLOSES.findall(f"{one.title}\n{one.body or ''}")}:
            if issue := one.project.issues.get(number):
                world.set_state(issue, user, "closed")
    source = one.source
    if one.remove_branch and source and source.head(one.branch) == one.head_sha and one.branch not in source.protected:
        bare.delete_ref(source.path, f"refs/heads/{one.branch}")
        if source is not one.project:
            refs_moved(world, source, user)
    refs_moved(world, one.project, user)


def rebase(world: World, one: MergeRequest, user: User) -> None:
    source = one.source or one.project
    if rules.level(source, user) < rules.DEVELOPER:
        raise Refused(403, "403 Forbidden - Cannot push to source branch")
    base = one.project.head(one.base) or ""
    try:
        made = bare.merge_commit(one.project.path, base, one.head_sha, "rebase", "", one.author.login)
    except bare.GitFailed:
        one.merge_error = "Rebase failed. Please rebase locally"
        return
    bare.import_commit(source.path, one.project.path, made, f"refs/heads/{one.branch}")
    refs_moved(world, source, user)


def board(world: World, one: MergeRequest, user: User, how: dict[str, Any]) -> Train:
    """Put it on its base's merge train."""
    if not one.project.merge_trains:
        raise Refused(403, "403 Forbidden")
    if how.get("sha") and how["sha"] != one.head_sha:
        raise Refused(409, "SHA does not match HEAD of source branch")
    status = rules.detailed(one, rules.merge_status(one, ask=False))
    if status != "mergeable":
        raise Refused(400, "Failed to merge")
    if one.train is None:
        one.train = Train(**world.base(), merge_request=one, user=user, squash=bool(how.get("squash")))
        one.auto_merge, one.auto_merge_by = dict(how), user
        world.said(one, user, "started a merge train")
        world.told(one, user, "update")
        settle(world, one.project)
    return one.train


def _ride(world: World, project: Project) -> bool:
    """Move the first of each train; True when another one became the first."""
    line = sorted((one.train for one in project.merge_requests.values() if one.train), key=lambda train: train.id)
    for train in line[:1]:
        one = train.merge_request
        base = project.head(one.base) or ""
        if train.base_sha != base:
            try:
                train.sha = bare.merge_commit(
                    project.path, base, one.head_sha, "merge", f"Merge branch '{one.branch}'", one.author.login
                )
            except bare.GitFailed:
                one.train = one.auto_merge = None
                return True
            train.base_sha = base
            bare.set_ref(project.path, f"refs/merge-requests/{one.iid}/train", train.sha)
            ref = f"refs/merge-requests/{one.iid}/train"
            train.pipeline = ci.pipeline(world, project, train.sha, ref=ref, source="merge_request_event", of=one)
            one.head_pipeline = train.pipeline
            if project.ci:
                project.ci(project, train.sha)
        state = train.pipeline.status if train.pipeline else "created"
        if state == "success":
            bare.set_ref(project.path, f"refs/heads/{one.base}", train.sha, base)
            one.merge_commit = train.sha
            landed(world, one, train.user)
            return True
        if state in ("failed", "canceled"):
            one.train = one.auto_merge = None
            world.said(
                one, train.user, "removed this merge request from the merge train because the pipeline did not succeed"
            )
            world.told(one, train.user, "update")
            return True
    return False


def settle(world: World, project: Project) -> None:
    """Land what may land now: what was pushed to its base by hand, the front of the train, what merges by itself."""
    for one in list(project.merge_requests.values()):
        base = project.head(one.base)
        if one.state == "opened" and base and base != one.base_sha and bare.contains(project.path, one.head_sha, base):
            landed(world, one, project.creator)
    while _ride(world, project):
        pass
    for one in list(project.merge_requests.values()):
        how, by = one.auto_merge, one.auto_merge_by
        if one.state != "opened" or how is None or by is None or one.train:
            continue
        status = rules.detailed(one, "can_be_merged" if rules.can_be_merged(one) else "cannot_be_merged")
        pipeline = one.head_pipeline
        green = pipeline is None or pipeline.sha != one.head_sha or pipeline.status in ("success", "skipped")
        if status == "mergeable" and green:
            _land(world, one, by, how)


def refs_moved(world: World, project: Project, user: User) -> None:
    """See what a push has changed, and what follows from it. Merges come this way too."""
    now = bare.refs(project.path)
    before, project.refs = project.refs, now
    moved = [ref for ref in {**before, **now} if before.get(ref) != now.get(ref) and ref.startswith("refs/heads/")]
    for ref in moved:
        payload = world.payloads.push(project, user, ref, before.get(ref), now.get(ref))
        world.hooks.happened(project, "Push Hook", payload)
    for ref in moved:
        _branch_moved(world, project, user, ref.removeprefix("refs/heads/"), before.get(ref), now.get(ref))
    for ref in moved:
        if project.ci and now.get(ref):
            project.ci(project, now[ref])
    if moved:
        world.touch(project)
        for concerned in (project, project.parent):
            if concerned:
                settle(world, concerned)


def _branch_moved(world: World, project: Project, user: User, branch: str, old: str | None, new: str | None) -> None:
    for other in list(world.projects.values()):
        for one in list(other.merge_requests.values()):
            if one.state != "opened":
                continue
            if one.source is project and one.branch == branch and new and new != one.head_sha:
                _head_moved(world, one, user, old or one.head_sha, new)
            if one.project is project and one.base == branch:
                one.unknown_left = world.unknown_first


def _head_moved(world: World, one: MergeRequest, user: User, old: str, new: str) -> None:
    source = one.source or one.project
    bare.import_commit(one.project.path, source.path, new, f"refs/merge-requests/{one.iid}/head")
    many = len(bare.commits(one.project.path, old, new))
    one.head_sha, one.unknown_left = new, world.unknown_first
    one.base_sha = bare.merge_base(one.project.path, one.project.head(one.base) or "", new)
    one.train = one.auto_merge = None
    world.said(one, user, f"added {many} commit{'s' if many != 1 else ''}\n\n<ul><li>{new[:8]}</li></ul>")
    if one.project.reset_approvals_on_push and one.approvals:
        world.said(one, user, "reset approvals from " + ", ".join(f"@{name}" for name in one.approvals))
        one.approvals.clear()
    ci.adopt(one)
    world.told(one, user, "update", oldrev=old)
