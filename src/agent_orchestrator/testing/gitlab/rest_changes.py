"""REST of merge requests: listing, opening, changing, approving, landing, trains."""

from __future__ import annotations

from typing import Any

from agent_orchestrator.testing.forge.wire import Answer
from agent_orchestrator.testing.gitlab import changes, ci, rules
from agent_orchestrator.testing.gitlab.calls import Call, Page, route
from agent_orchestrator.testing.gitlab.rest_issues import change_common, chosen
from agent_orchestrator.testing.gitlab.state import MergeRequest, Refused

_HOW = ("sha", "merge_commit_message", "squash_commit_message")
_FLAGS = ("squash", "should_remove_source_branch", "auto_merge", "merge_when_pipeline_succeeds")


@route("GET", "PROJECT/merge_requests")
def merge_requests(call: Call) -> Page:
    found: list[MergeRequest] = chosen(call, call.project.merge_requests.values())
    for key, name in (("source_branch", "branch"), ("target_branch", "base")):
        if wanted := call.query.get(key):
            found = [one for one in found if getattr(one, name) == wanted]
    return Page(found, call.show.merge_request)


@route("POST", "PROJECT/merge_requests")
def new_merge_request(call: Call) -> Answer:
    source, target = call.project, call.given("target_project_id")
    project = call.find_project(str(target)) if target else source
    made = changes.open_merge_request(
        call.world, project, call.who(), call.needed("source_branch"), call.needed("target_branch"), call.needed("title"),
        call.given("description"), source=source if source is not project else None, squash=call.flag("squash"),
        remove_branch=call.flag("remove_source_branch"),
    )  # fmt: skip
    if names := call.names("labels"):
        call.world.set_labels(made, call.who(), names)
    return Answer(201, call.show.whole(made))


@route("GET", "PROJECT/merge_requests/{iid}")
def merge_request(call: Call) -> Answer:
    return Answer(body=call.show.whole(call.merge_request))


@route("PUT", "PROJECT/merge_requests/{iid}")
def edit_merge_request(call: Call) -> Answer:
    found = call.merge_request
    change_common(call, found)
    if base := call.given("target_branch"):
        call.world.change(found, call.who(), base=base)
    reviewers = call.people("reviewer_ids")
    if reviewers is not None:
        changes.request_review(call.world, found, call.who(), reviewers)
    changes.settle(call.world, found.project)
    return Answer(body=call.show.whole(found))


def _how(call: Call) -> dict[str, Any]:
    words = {name: value for name in _HOW if (value := call.given(name)) is not None}
    return words | {name: call.flag(name) for name in _FLAGS if call.given(name) is not None}


@route("PUT", "PROJECT/merge_requests/{iid}/merge")
def merge(call: Call) -> Answer:
    changes.merge(call.world, call.merge_request, call.who(), _how(call))
    return Answer(body=call.show.whole(call.merge_request))


@route("POST", "PROJECT/merge_requests/{iid}/cancel_merge_when_pipeline_succeeds")
def cancel(call: Call) -> Answer:
    found = call.merge_request
    if found.auto_merge is None:
        raise Refused(406, "406 Not Acceptable")
    found.auto_merge = found.train = None
    call.world.touch(found)
    return Answer(201, {"status": "success"})


@route("PUT", "PROJECT/merge_requests/{iid}/rebase")
def rebase(call: Call) -> Answer:
    changes.rebase(call.world, call.merge_request, call.who())
    return Answer(202, {"rebase_in_progress": True})


@route("GET", "PROJECT/merge_requests/{iid}/approvals")
def approvals(call: Call) -> Answer:
    return Answer(body=call.show.approvals(call.merge_request))


@route("POST", "PROJECT/merge_requests/{iid}/approve")
def approve(call: Call) -> Answer:
    changes.approve(call.world, call.merge_request, call.who(), call.given("sha"))
    return Answer(201, call.show.approvals(call.merge_request))


@route("POST", "PROJECT/merge_requests/{iid}/unapprove")
def unapprove(call: Call) -> Answer:
    changes.unapprove(call.world, call.merge_request, call.who())
    return Answer(201, call.show.approvals(call.merge_request))


@route("GET", "PROJECT/merge_requests/{iid}/reviewers")
def reviewers(call: Call) -> Page:
    found = call.merge_request
    return Page(list(found.reviewers), lambda login: call.show.reviewer(found, login))


@route("GET", "PROJECT/merge_requests/{iid}/pipelines")
def pipelines(call: Call) -> Page:
    found = call.merge_request
    every = [one for one in found.project.pipelines.values() if one.merge_request is found]
    return Page(every[::-1], call.show.pipeline)


@route("GET", "PROJECT/merge_trains")
def trains(call: Call) -> Page:
    found = [one.train for one in call.project.merge_requests.values() if one.train]
    return Page(found, call.show.train)


@route("GET", "PROJECT/merge_trains/merge_requests/{iid}")
def train(call: Call) -> Answer:
    found = call.merge_request.train
    if found is None:
        raise Refused(404, "404 Not Found")
    return Answer(body=call.show.train(found))


@route("POST", "PROJECT/merge_trains/merge_requests/{iid}")
def board(call: Call) -> Answer:
    call.need(rules.DEVELOPER)
    made = changes.board(call.world, call.merge_request, call.who(), _how(call))
    return Answer(201, [call.show.train(made)])


# --- pipelines and jobs


@route("GET", "PROJECT/pipelines")
def project_pipelines(call: Call) -> Page:
    found = list(call.project.pipelines.values())
    if sha := call.query.get("sha"):
        found = [one for one in found if one.sha == sha]
    key = "updated_at" if call.query.get("order_by") == "updated_at" else "id"
    return Page(sorted(found, key=lambda one: (getattr(one, key), one.id), reverse=True), call.show.pipeline)


def _pipeline(call: Call) -> Any:
    found = call.project.pipelines.get(int(call.args["pipeline_id"]))
    if found is None:
        raise Refused(404, "404 Not found")
    return found


@route("GET", "PROJECT/pipelines/{pipeline_id}")
def pipeline(call: Call) -> Answer:
    return Answer(body=call.show.whole_pipeline(_pipeline(call)))


@route("GET", "PROJECT/pipelines/{pipeline_id}/jobs")
def jobs(call: Call) -> Page:
    every = call.flag("include_retried")
    found = [job for job in _pipeline(call).jobs if not job.external and (every or not job.retried)]
    return Page(found[::-1], call.show.job)


@route("POST", "PROJECT/pipelines/{pipeline_id}/retry")
def retry(call: Call) -> Answer:
    call.need(rules.DEVELOPER)
    found = _pipeline(call)
    ci.retry(call.world, found)
    return Answer(201, call.show.whole_pipeline(found))


def _job(call: Call) -> Any:
    number = int(call.args["job_id"])
    every = (job for one in call.project.pipelines.values() for job in one.jobs)
    found = next((job for job in every if job.id == number and not job.external), None)
    if found is None:
        raise Refused(404, "404 Not found")
    return found


@route("GET", "PROJECT/jobs/{job_id}")
def job(call: Call) -> Answer:
    return Answer(body=call.show.job(_job(call)))


@route("GET", "PROJECT/jobs/{job_id}/trace")
def trace(call: Call) -> Answer:
    return Answer(stream=ci.trace(_job(call)), headers={"Content-Type": "text/plain; charset=utf-8"})


@route("GET", "PROJECT/repository/commits/{sha}/statuses")
def statuses(call: Call) -> Page:
    found = [job for one in call.project.pipelines.values() if one.sha == call.args["sha"] for job in one.jobs]
    if wanted := call.query.get("pipeline_id"):
        found = [job for job in found if str(job.pipeline.id) == wanted]
    return Page([job for job in found if not job.retried], call.show.status)


@route("POST", "PROJECT/statuses/{sha}")
def report(call: Call) -> Answer:
    call.need(rules.DEVELOPER)
    name = str(call.given("name") or call.given("context") or "default")
    made = ci.report(
        call.world, call.project, call.args["sha"], name, call.needed("state"), external=True, url=call.given("target_url"),
        description=call.given("description"),
    )  # fmt: skip
    return Answer(201, call.show.status(made))
