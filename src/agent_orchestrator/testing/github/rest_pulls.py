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
def listed(call: Call) -> Page:
    found = [pull for pull in call.repo.pulls() if _matches(call, pull)]
    by = (lambda p: (p.updated_at, p.id)) if call.query.get("sort") == "updated" else (lambda p: (p.created_at, p.id))
    down = call.query.get("direction", "desc" if call.query.get("sort", "created") == "created" else "asc") == "desc"
    return Page(sorted(found, key=by, reverse=down), call.show.simple_pull)


@route("POST", "REPO/pulls")
def made(call: Call) -> Answer:
    title = call.given("title")
    if not title:
        raise invalid("PullRequest", "title", code="missing_field")
    user, head = call.who(), str(call.needed("head"))
    if ":" not in head:
        call.world.need_push(call.repo, user)
    pull = pulls.open_pull(
        call.world,
        call.repo,
        user,
        head,
        str(call.needed("base")),
        title,
        call.given("body"),
        bool(call.given("draft")),
    )
    return Answer(201, call.show.pull(pull))


@route("GET", "REPO/pulls/{number}")
def one(call: Call) -> Answer:
    if "diff" in call.headers.get("accept", ""):
        text = bare.git(call.repo.path, "diff", f"{rules.base_sha(call.pull)}...{call.pull.head_sha}")
        return Answer(
            stream=iter([text.encode()]), headers={"Content-Type": "application/vnd.github.diff; charset=utf-8"}
        )
    return Answer(body=call.show.pull(call.pull), modified=call.pull.updated_at)


@route("PATCH", "REPO/pulls/{number}")
def edited(call: Call) -> Answer:
    pull, user = call.pull, call.who()
    if user is not pull.user:
        call.world.need_push(pull.repo, user)
    pulls.edit(call.world, pull, user, call.given("title"), call.given("body"), call.given("base"))
    if state := call.given("state"):
        pulls.set_state(call.world, pull, user, state)
    return Answer(body=call.show.pull(pull))


@route("GET", "REPO/pulls/{number}/merge")
def is_merged(call: Call) -> Answer:
    if not call.pull.merged:
        raise Refused(404, "Not Found")
    return Answer(204)


@route("PUT", "REPO/pulls/{number}/merge")
def merged(call: Call) -> Answer:
    sha = merges.merge(
        call.world, call.pull, call.who(), call.given("merge_method", "merge"), call.given("sha"), call.given("commit_title"),
        call.given("commit_message"),
    )  # fmt: skip
    return Answer(body={"sha": sha, "merged": True, "message": "Pull Request successfully merged"})


@route("PUT", "REPO/pulls/{number}/update-branch")
def updated(call: Call) -> Answer:
    pulls.update_branch(call.world, call.pull, call.who(), call.given("expected_head_sha"))
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
def of_commit(call: Call) -> Page:
    sha = sha_of(call.repo, call.args["sha"])
    found = [p for p in call.repo.pulls() if sha == p.head_sha or sha == p.merge_commit]
    return Page(found, call.show.simple_pull)


def _seen(call: Call, review: Review) -> bool:
    return review.state != "PENDING" or review.user is call.viewer


@route("GET", "REPO/pulls/{number}/reviews")
def all_reviews(call: Call) -> Page:
    return Page([review for review in call.pull.reviews if _seen(call, review)], call.show.review)


@route("POST", "REPO/pulls/{number}/reviews")
def reviewed(call: Call) -> Answer:
    made = reviews.review(
        call.world, call.pull, call.who(), call.given("event"), call.given("body") or "", call.given("comments"),
        commit=call.given("commit_id"),
    )  # fmt: skip
    return Answer(body=call.show.review(made))


def _review(call: Call) -> Review:
    for review in call.pull.reviews:
        if review.id == int(call.args["review_id"]) and _seen(call, review):
            return review
    raise Refused(404, "Not Found")


@route("GET", "REPO/pulls/{number}/reviews/{review_id}")
def one_review(call: Call) -> Answer:
    return Answer(body=call.show.review(_review(call)))


@route("POST", "REPO/pulls/{number}/reviews/{review_id}/events")
def submitted(call: Call) -> Answer:
    reviews.submit(call.world, _review(call), call.needed("event"), call.given("body"))
    return Answer(body=call.show.review(_review(call)))


@route("PUT", "REPO/pulls/{number}/reviews/{review_id}/dismissals")
def dismissed(call: Call) -> Answer:
    reviews.dismiss(call.world, _review(call), call.who())
    return Answer(body=call.show.review(_review(call)))


@route("GET", "REPO/pulls/{number}/reviews/{review_id}/comments")
def comments_of_review(call: Call) -> Page:
    review = _review(call)
    return Page([comment for comment in _comments(call.pull) if comment.review is review], call.show.review_comment)


def _comments(pull: Pull) -> list[ReviewComment]:
    found = [comment for thread in pull.threads for comment in thread.comments if comment.review.state != "PENDING"]
    return sorted(found, key=lambda comment: comment.id)


@route("GET", "REPO/pulls/{number}/comments")
def comments(call: Call) -> Page:
    found = [comment for comment in _comments(call.pull) if comment.updated_at >= call.query.get("since", "")]
    return Page(found, call.show.review_comment)


@route("GET", "REPO/pulls/comments")
def all_comments(call: Call) -> Page:
    found = [comment for pull in call.repo.pulls() for comment in _comments(pull)]
    found = [comment for comment in found if comment.updated_at >= call.query.get("since", "")]
    by = (lambda c: (c.updated_at, c.id)) if call.query.get("sort") == "updated" else (lambda c: (c.created_at, c.id))
    return Page(sorted(found, key=by, reverse=call.query.get("direction") == "desc"), call.show.review_comment)


@route("POST", "REPO/pulls/{number}/comments")
def commented(call: Call) -> Answer:
    if answered := call.given("in_reply_to"):
        return _reply(call, int(answered))
    thread = reviews.start_thread(
        call.world, call.pull, call.who(), str(call.given("body") or ""), str(call.needed("path")), call.given("line"),
        side=call.given("side", "RIGHT"), start_line=call.given("start_line"),
    )  # fmt: skip
    return Answer(201, call.show.review_comment(thread.comments[0]))


def _reply(call: Call, to: int) -> Answer:
    for thread in call.pull.threads:
        if any(comment.id == to for comment in thread.comments):
            made = reviews.reply(call.world, thread, call.who(), str(call.given("body") or ""))
            return Answer(201, call.show.review_comment(made))
    raise Refused(404, "Not Found")


@route("POST", "REPO/pulls/{number}/comments/{comment_id}/replies")
def replied(call: Call) -> Answer:
    return _reply(call, int(call.args["comment_id"]))


def _comment(call: Call) -> ReviewComment:
    for pull in call.repo.pulls():
        for comment in _comments(pull):
            if comment.id == int(call.args["comment_id"]):
                return comment
    raise Refused(404, "Not Found")


@route("GET", "REPO/pulls/comments/{comment_id}")
def one_comment(call: Call) -> Answer:
    return Answer(body=call.show.review_comment(_comment(call)), modified=_comment(call).updated_at)


def _own_comment(call: Call) -> ReviewComment:
    comment = _comment(call)
    if comment.user is not call.who():
        call.world.need_push(call.repo, call.who())
    return comment


@route("PATCH", "REPO/pulls/comments/{comment_id}")
def edited_comment(call: Call) -> Answer:
    comment = _own_comment(call)
    reviews.edit_comment(call.world, comment, call.who(), call.needed("body"))
    return Answer(body=call.show.review_comment(comment))


@route("DELETE", "REPO/pulls/comments/{comment_id}")
def deleted_comment(call: Call) -> Answer:
    reviews.delete_comment(call.world, _own_comment(call), call.who())
    return Answer(204)


@route("GET", "REPO/pulls/{number}/requested_reviewers")
def requested(call: Call) -> Answer:
    return Answer(body={"users": [call.show.user(user) for user in call.pull.requested], "teams": []})


@route("POST", "REPO/pulls/{number}/requested_reviewers")
def request(call: Call) -> Answer:
    reviews.request(call.world, call.pull, call.who(), call.given("reviewers") or [])
    return Answer(201, call.show.simple_pull(call.pull))


@route("DELETE", "REPO/pulls/{number}/requested_reviewers")
def unrequest(call: Call) -> Answer:
    reviews.request(call.world, call.pull, call.who(), call.given("reviewers") or [], remove=True)
    return Answer(body=call.show.simple_pull(call.pull))
