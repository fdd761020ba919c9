"""REST: pull requests, their merge, reviews, review comments, requested reviewers, files and commits."""

from __future__ import annotations

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.forge.http import ForgeAnswer
from agent_orchestrator.testing.github import merges, pulls, reviews, rules
from agent_orchestrator.testing.github.calls import GitHubCall, GitHubPage, route
from agent_orchestrator.testing.github.rest import sha_of
from agent_orchestrator.testing.github.state import GitHubPullRequest, GitHubReview, ReviewComment
from agent_orchestrator.testing.github.world import GitHubRefused, validation_error


def _matches(call: GitHubCall, pull: GitHubPullRequest) -> bool:
    query = call.query
    head = f"{(pull.head_repo or pull.repo).owner.login}:{pull.head_ref}".lower()
    return (
        query.get("state", "open") in ("all", pull.state)
        and query.get("head", head).lower() == head
        and query.get("base", pull.base_ref) == pull.base_ref
    )


@route("GET", "REPO/pulls")
def list_pulls(call: GitHubCall) -> GitHubPage:
    matching = [pull for pull in call.repo.pulls() if _matches(call, pull)]
    sort_key = (
        (lambda p: (p.updated_at, p.id)) if call.query.get("sort") == "updated" else (lambda p: (p.created_at, p.id))
    )
    is_descending = (
        call.query.get("direction", "desc" if call.query.get("sort", "created") == "created" else "asc") == "desc"
    )
    return GitHubPage(sorted(matching, key=sort_key, reverse=is_descending), call.shapes.simple_pull)


@route("POST", "REPO/pulls")
def create_pull(call: GitHubCall) -> ForgeAnswer:
    title = call.parameter("title")
    if not title:
        raise validation_error("PullRequest", "title", code="missing_field")
    user, head = call.require_user(), str(call.required_parameter("head"))
    if ":" not in head:
        call.world.require_push(call.repo, user)
    pull = pulls.open_pull(
        call.world,
        call.repo,
        user,
        head,
        str(call.required_parameter("base")),
        title,
        call.parameter("body"),
        bool(call.parameter("draft")),
    )
    return ForgeAnswer(201, call.shapes.pull(pull))


@route("GET", "REPO/pulls/{number}")
def get_pull(call: GitHubCall) -> ForgeAnswer:
    if "diff" in call.headers.get("accept", ""):
        text = bare_repository.git(call.repo.path, "diff", f"{rules.base_sha(call.pull)}...{call.pull.head_sha}")
        return ForgeAnswer(
            stream=iter([text.encode()]), headers={"Content-Type": "application/vnd.github.diff; charset=utf-8"}
        )
    return ForgeAnswer(body=call.shapes.pull(call.pull), last_modified=call.pull.updated_at)


@route("PATCH", "REPO/pulls/{number}")
def edit_pull(call: GitHubCall) -> ForgeAnswer:
    pull, user = call.pull, call.require_user()
    if user is not pull.user:
        call.world.require_push(pull.repo, user)
    pulls.edit(call.world, pull, user, call.parameter("title"), call.parameter("body"), call.parameter("base"))
    if state := call.parameter("state"):
        pulls.set_state(call.world, pull, user, state)
    return ForgeAnswer(body=call.shapes.pull(pull))


@route("GET", "REPO/pulls/{number}/merge")
def is_merged(call: GitHubCall) -> ForgeAnswer:
    if not call.pull.merged:
        raise GitHubRefused(404, "Not Found")
    return ForgeAnswer(204)


@route("PUT", "REPO/pulls/{number}/merge")
def merge_pull(call: GitHubCall) -> ForgeAnswer:
    sha = merges.merge(
        call.world,
        call.pull,
        call.require_user(),
        call.parameter("merge_method", "merge"),
        call.parameter("sha"),
        call.parameter("commit_title"),
        call.parameter("commit_message"),
    )
    return ForgeAnswer(body={"sha": sha, "merged": True, "message": "Pull Request successfully merged"})


@route("PUT", "REPO/pulls/{number}/update-branch")
def update_branch(call: GitHubCall) -> ForgeAnswer:
    pulls.update_branch(call.world, call.pull, call.require_user(), call.parameter("expected_head_sha"))
    return ForgeAnswer(202, {"message": "Updating pull request branch.", "url": call.shapes.issue_page(call.pull)})


@route("GET", "REPO/pulls/{number}/files")
def files(call: GitHubCall) -> GitHubPage:
    pull = call.pull
    return GitHubPage(
        list(bare_repository.changes(pull.repo.path, rules.base_sha(pull), pull.head_sha)),
        lambda file: call.shapes.file(pull, file),
    )


@route("GET", "REPO/pulls/{number}/commits")
def commits(call: GitHubCall) -> GitHubPage:
    pull = call.pull
    return GitHubPage(
        list(bare_repository.commits(pull.repo.path, rules.base_sha(pull), pull.head_sha)),
        lambda sha: call.shapes.commit(pull.repo, sha),
    )


@route("GET", "REPO/commits/{sha}/pulls")
def pulls_of_commit(call: GitHubCall) -> GitHubPage:
    sha = sha_of(call.repo, call.args["sha"])
    matching = [p for p in call.repo.pulls() if sha == p.head_sha or sha == p.merge_commit]
    return GitHubPage(matching, call.shapes.simple_pull)


def _is_visible(call: GitHubCall, review: GitHubReview) -> bool:
    return review.state != "PENDING" or review.user is call.viewer


@route("GET", "REPO/pulls/{number}/reviews")
def all_reviews(call: GitHubCall) -> GitHubPage:
    return GitHubPage([review for review in call.pull.reviews if _is_visible(call, review)], call.shapes.review)


@route("POST", "REPO/pulls/{number}/reviews")
def create_review(call: GitHubCall) -> ForgeAnswer:
    created = reviews.review(
        call.world, call.pull, call.require_user(), call.parameter("event"), call.parameter("body") or "", call.parameter("comments"),
        commit=call.parameter("commit_id"),
    )  # fmt: skip
    return ForgeAnswer(body=call.shapes.review(created))


def _review(call: GitHubCall) -> GitHubReview:
    for review in call.pull.reviews:
        if review.id == int(call.args["review_id"]) and _is_visible(call, review):
            return review
    raise GitHubRefused(404, "Not Found")


@route("GET", "REPO/pulls/{number}/reviews/{review_id}")
def get_review(call: GitHubCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.review(_review(call)))


@route("POST", "REPO/pulls/{number}/reviews/{review_id}/events")
def submit_review(call: GitHubCall) -> ForgeAnswer:
    reviews.submit(call.world, _review(call), call.required_parameter("event"), call.parameter("body"))
    return ForgeAnswer(body=call.shapes.review(_review(call)))


@route("PUT", "REPO/pulls/{number}/reviews/{review_id}/dismissals")
def dismiss_review(call: GitHubCall) -> ForgeAnswer:
    reviews.dismiss(call.world, _review(call), call.require_user())
    return ForgeAnswer(body=call.shapes.review(_review(call)))


@route("GET", "REPO/pulls/{number}/reviews/{review_id}/comments")
def comments_of_review(call: GitHubCall) -> GitHubPage:
    review = _review(call)
    return GitHubPage(
        [comment for comment in _comments(call.pull) if comment.review is review], call.shapes.review_comment
    )


def _comments(pull: GitHubPullRequest) -> list[ReviewComment]:
    submitted_comments = [
        comment for thread in pull.threads for comment in thread.comments if comment.review.state != "PENDING"
    ]
    return sorted(submitted_comments, key=lambda comment: comment.id)


@route("GET", "REPO/pulls/{number}/comments")
def comments(call: GitHubCall) -> GitHubPage:
    recent = [comment for comment in _comments(call.pull) if comment.updated_at >= call.query.get("since", "")]
    return GitHubPage(recent, call.shapes.review_comment)


@route("GET", "REPO/pulls/comments")
def all_comments(call: GitHubCall) -> GitHubPage:
    recent = [comment for pull in call.repo.pulls() for comment in _comments(pull)]
    recent = [comment for comment in recent if comment.updated_at >= call.query.get("since", "")]
    sort_key = (
        (lambda c: (c.updated_at, c.id)) if call.query.get("sort") == "updated" else (lambda c: (c.created_at, c.id))
    )
    return GitHubPage(
        sorted(recent, key=sort_key, reverse=call.query.get("direction") == "desc"), call.shapes.review_comment
    )


@route("POST", "REPO/pulls/{number}/comments")
def create_comment(call: GitHubCall) -> ForgeAnswer:
    if answered := call.parameter("in_reply_to"):
        return _reply(call, int(answered))
    thread = reviews.start_thread(
        call.world,
        call.pull,
        call.require_user(),
        str(call.parameter("body") or ""),
        str(call.required_parameter("path")),
        call.parameter("line"),
        side=call.parameter("side", "RIGHT"),
        start_line=call.parameter("start_line"),
    )
    return ForgeAnswer(201, call.shapes.review_comment(thread.comments[0]))


def _reply(call: GitHubCall, comment_id: int) -> ForgeAnswer:
    for thread in call.pull.threads:
        if any(comment.id == comment_id for comment in thread.comments):
            created = reviews.reply(call.world, thread, call.require_user(), str(call.parameter("body") or ""))
            return ForgeAnswer(201, call.shapes.review_comment(created))
    raise GitHubRefused(404, "Not Found")


@route("POST", "REPO/pulls/{number}/comments/{comment_id}/replies")
def create_reply(call: GitHubCall) -> ForgeAnswer:
    return _reply(call, int(call.args["comment_id"]))


def _comment(call: GitHubCall) -> ReviewComment:
    for pull in call.repo.pulls():
        for comment in _comments(pull):
            if comment.id == int(call.args["comment_id"]):
                return comment
    raise GitHubRefused(404, "Not Found")


@route("GET", "REPO/pulls/comments/{comment_id}")
def get_comment(call: GitHubCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.review_comment(_comment(call)), last_modified=_comment(call).updated_at)


def _own_comment(call: GitHubCall) -> ReviewComment:
    comment = _comment(call)
    if comment.user is not call.require_user():
        call.world.require_push(call.repo, call.require_user())
    return comment


@route("PATCH", "REPO/pulls/comments/{comment_id}")
def edit_comment(call: GitHubCall) -> ForgeAnswer:
    comment = _own_comment(call)
    reviews.edit_comment(call.world, comment, call.require_user(), call.required_parameter("body"))
    return ForgeAnswer(body=call.shapes.review_comment(comment))


@route("DELETE", "REPO/pulls/comments/{comment_id}")
def delete_comment(call: GitHubCall) -> ForgeAnswer:
    reviews.delete_comment(call.world, _own_comment(call), call.require_user())
    return ForgeAnswer(204)


@route("GET", "REPO/pulls/{number}/requested_reviewers")
def list_requested(call: GitHubCall) -> ForgeAnswer:
    return ForgeAnswer(body={"users": [call.shapes.user(user) for user in call.pull.requested], "teams": []})


@route("POST", "REPO/pulls/{number}/requested_reviewers")
def request_reviews(call: GitHubCall) -> ForgeAnswer:
    reviews.request(call.world, call.pull, call.require_user(), call.parameter("reviewers") or [])
    return ForgeAnswer(201, call.shapes.simple_pull(call.pull))


@route("DELETE", "REPO/pulls/{number}/requested_reviewers")
def remove_requests(call: GitHubCall) -> ForgeAnswer:
    reviews.request(call.world, call.pull, call.require_user(), call.parameter("reviewers") or [], remove=True)
    return ForgeAnswer(body=call.shapes.simple_pull(call.pull))
