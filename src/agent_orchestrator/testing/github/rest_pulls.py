"""REST: pull requests, their merge, reviews, review comments, requested reviewers, files and commits."""

from __future__ import annotations

from agent_orchestrator.testing.forge import bare
from agent_orchestrator.testing.forge.wire import Answer
from agent_orchestrator.testing.github import merges, pulls, reviews, rules
from agent_orchestrator.testing.github.calls import Call, Page, route
from agent_orchestrator.testing.github.rest import sha_of
from agent_orchestrator.testing.github.state import Pull, Review, ReviewComment
from agent_orchestrator.testing.github.world import Refused, invalid


def _matches(call: Call, pull: Pull) -> bool:
    query = call.query
    head = f"{(pull.head_repo or pull.repo).owner.login}:{pull.head_ref}".lower()
    return (
        query.get("state", "open") in ("all", pull.state)
        and query.get("head", head).lower() == head
        and query.get("base", pull.base_ref) == pull.base_ref
    )


@route("GET", "REPO/pulls")
def list_pulls(call: Call) -> Page:
    matching = [pull for pull in call.repo.pulls() if _matches(call, pull)]
    sort_key = (
        (lambda p: (p.updated_at, p.id)) if call.query.get("sort") == "updated" else (lambda p: (p.created_at, p.id))
    )
    is_descending = (
        call.query.get("direction", "desc" if call.query.get("sort", "created") == "created" else "asc") == "desc"
    )
    return Page(sorted(matching, key=sort_key, reverse=is_descending), call.show.simple_pull)


@route("POST", "REPO/pulls")
def create_pull(call: Call) -> Answer:
    title = call.parameter("title")
    if not title:
        raise invalid("PullRequest", "title", code="missing_field")
    user, head = call.require_user(), str(call.required_parameter("head"))
    if ":" not in head:
        call.world.need_push(call.repo, user)
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
    return Answer(201, call.show.pull(pull))


@route("GET", "REPO/pulls/{number}")
def get_pull(call: Call) -> Answer:
    if "diff" in call.headers.get("accept", ""):
        text = bare.git(call.repo.path, "diff", f"{rules.base_sha(call.pull)}...{call.pull.head_sha}")
        return Answer(
            stream=iter([text.encode()]), headers={"Content-Type": "application/vnd.github.diff; charset=utf-8"}
        )
    return Answer(body=call.show.pull(call.pull), modified=call.pull.updated_at)


@route("PATCH", "REPO/pulls/{number}")
def edit_pull(call: Call) -> Answer:
    pull, user = call.pull, call.require_user()
    if user is not pull.user:
        call.world.need_push(pull.repo, user)
    pulls.edit(call.world, pull, user, call.parameter("title"), call.parameter("body"), call.parameter("base"))
    if state := call.parameter("state"):
        pulls.set_state(call.world, pull, user, state)
    return Answer(body=call.show.pull(pull))


@route("GET", "REPO/pulls/{number}/merge")
def is_merged(call: Call) -> Answer:
    if not call.pull.merged:
        raise Refused(404, "Not Found")
    return Answer(204)


@route("PUT", "REPO/pulls/{number}/merge")
def merge_pull(call: Call) -> Answer:
    sha = merges.merge(
        call.world,
        call.pull,
        call.require_user(),
        call.parameter("merge_method", "merge"),
        call.parameter("sha"),
        call.parameter("commit_title"),
        call.parameter("commit_message"),
    )
    return Answer(body={"sha": sha, "merged": True, "message": "Pull Request successfully merged"})


@route("PUT", "REPO/pulls/{number}/update-branch")
def update_branch(call: Call) -> Answer:
    pulls.update_branch(call.world, call.pull, call.require_user(), call.parameter("expected_head_sha"))
    return Answer(202, {"message": "Updating pull request branch.", "url": call.show.issue_page(call.pull)})


@route("GET", "REPO/pulls/{number}/files")
def files(call: Call) -> Page:
    pull = call.pull
    return Page(
        list(bare.changes(pull.repo.path, rules.base_sha(pull), pull.head_sha)), lambda file: call.show.file(pull, file)
    )


@route("GET", "REPO/pulls/{number}/commits")
def commits(call: Call) -> Page:
    pull = call.pull
    return Page(
        list(bare.commits(pull.repo.path, rules.base_sha(pull), pull.head_sha)),
        lambda sha: call.show.commit(pull.repo, sha),
    )


@route("GET", "REPO/commits/{sha}/pulls")
def pulls_of_commit(call: Call) -> Page:
    sha = sha_of(call.repo, call.args["sha"])
    matching = [p for p in call.repo.pulls() if sha == p.head_sha or sha == p.merge_commit]
    return Page(matching, call.show.simple_pull)


def _is_visible(call: Call, review: Review) -> bool:
    return review.state != "PENDING" or review.user is call.viewer


@route("GET", "REPO/pulls/{number}/reviews")
def all_reviews(call: Call) -> Page:
    return Page([review for review in call.pull.reviews if _is_visible(call, review)], call.show.review)


@route("POST", "REPO/pulls/{number}/reviews")
def create_review(call: Call) -> Answer:
    created = reviews.review(
        call.world, call.pull, call.require_user(), call.parameter("event"), call.parameter("body") or "", call.parameter("comments"),
        commit=call.parameter("commit_id"),
    )  # fmt: skip
    return Answer(body=call.show.review(created))


def _review(call: Call) -> Review:
    for review in call.pull.reviews:
        if review.id == int(call.args["review_id"]) and _is_visible(call, review):
            return review
    raise Refused(404, "Not Found")


@route("GET", "REPO/pulls/{number}/reviews/{review_id}")
def get_review(call: Call) -> Answer:
    return Answer(body=call.show.review(_review(call)))


@route("POST", "REPO/pulls/{number}/reviews/{review_id}/events")
def submit_review(call: Call) -> Answer:
    reviews.submit(call.world, _review(call), call.required_parameter("event"), call.parameter("body"))
    return Answer(body=call.show.review(_review(call)))


@route("PUT", "REPO/pulls/{number}/reviews/{review_id}/dismissals")
def dismiss_review(call: Call) -> Answer:
    reviews.dismiss(call.world, _review(call), call.require_user())
    return Answer(body=call.show.review(_review(call)))


@route("GET", "REPO/pulls/{number}/reviews/{review_id}/comments")
def comments_of_review(call: Call) -> Page:
    review = _review(call)
    return Page([comment for comment in _comments(call.pull) if comment.review is review], call.show.review_comment)


def _comments(pull: Pull) -> list[ReviewComment]:
    submitted_comments = [
        comment for thread in pull.threads for comment in thread.comments if comment.review.state != "PENDING"
    ]
    return sorted(submitted_comments, key=lambda comment: comment.id)


@route("GET", "REPO/pulls/{number}/comments")
def comments(call: Call) -> Page:
    recent = [comment for comment in _comments(call.pull) if comment.updated_at >= call.query.get("since", "")]
    return Page(recent, call.show.review_comment)


@route("GET", "REPO/pulls/comments")
def all_comments(call: Call) -> Page:
    recent = [comment for pull in call.repo.pulls() for comment in _comments(pull)]
    recent = [comment for comment in recent if comment.updated_at >= call.query.get("since", "")]
    sort_key = (
        (lambda c: (c.updated_at, c.id)) if call.query.get("sort") == "updated" else (lambda c: (c.created_at, c.id))
    )
    return Page(sorted(recent, key=sort_key, reverse=call.query.get("direction") == "desc"), call.show.review_comment)


@route("POST", "REPO/pulls/{number}/comments")
def create_comment(call: Call) -> Answer:
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
    return Answer(201, call.show.review_comment(thread.comments[0]))


def _reply(call: Call, comment_id: int) -> Answer:
    for thread in call.pull.threads:
        if any(comment.id == comment_id for comment in thread.comments):
            created = reviews.reply(call.world, thread, call.require_user(), str(call.parameter("body") or ""))
            return Answer(201, call.show.review_comment(created))
    raise Refused(404, "Not Found")


@route("POST", "REPO/pulls/{number}/comments/{comment_id}/replies")
def create_reply(call: Call) -> Answer:
    return _reply(call, int(call.args["comment_id"]))


def _comment(call: Call) -> ReviewComment:
    for pull in call.repo.pulls():
        for comment in _comments(pull):
            if comment.id == int(call.args["comment_id"]):
                return comment
    raise Refused(404, "Not Found")


@route("GET", "REPO/pulls/comments/{comment_id}")
def get_comment(call: Call) -> Answer:
    return Answer(body=call.show.review_comment(_comment(call)), modified=_comment(call).updated_at)


def _own_comment(call: Call) -> ReviewComment:
    comment = _comment(call)
    if comment.user is not call.require_user():
        call.world.need_push(call.repo, call.require_user())
    return comment


@route("PATCH", "REPO/pulls/comments/{comment_id}")
def edit_comment(call: Call) -> Answer:
    comment = _own_comment(call)
    reviews.edit_comment(call.world, comment, call.require_user(), call.required_parameter("body"))
    return Answer(body=call.show.review_comment(comment))


@route("DELETE", "REPO/pulls/comments/{comment_id}")
def delete_comment(call: Call) -> Answer:
    reviews.delete_comment(call.world, _own_comment(call), call.require_user())
    return Answer(204)


@route("GET", "REPO/pulls/{number}/requested_reviewers")
def list_requested(call: Call) -> Answer:
    return Answer(body={"users": [call.show.user(user) for user in call.pull.requested], "teams": []})


@route("POST", "REPO/pulls/{number}/requested_reviewers")
def request_reviews(call: Call) -> Answer:
    reviews.request(call.world, call.pull, call.require_user(), call.parameter("reviewers") or [])
    return Answer(201, call.show.simple_pull(call.pull))


@route("DELETE", "REPO/pulls/{number}/requested_reviewers")
def remove_requests(call: Call) -> Answer:
    reviews.request(call.world, call.pull, call.require_user(), call.parameter("reviewers") or [], remove=True)
    return Answer(body=call.show.simple_pull(call.pull))
