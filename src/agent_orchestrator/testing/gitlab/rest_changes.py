"""REST: merge requests, approvals, merges, merge trains, pipelines and jobs."""

from __future__ import annotations

from typing import Any

from agent_orchestrator.testing.forge.wire import Answer
from agent_orchestrator.testing.gitlab import changes, job_states, rules
from agent_orchestrator.testing.gitlab.calls import Call, Page, route
from agent_orchestrator.testing.gitlab.rest_issues import change_common, filtered
from agent_orchestrator.testing.gitlab.state import MergeRequest, Refused

_MERGE_TEXTS = ("sha", "merge_commit_message", "squash_commit_message")
_MERGE_FLAGS = ("squash", "should_remove_source_branch", "auto_merge", "merge_when_pipeline_succeeds")


@route("GET", "PROJECT/merge_requests")
def merge_requests(call: Call) -> Page:
    matching: list[MergeRequest] = filtered(call, call.project.merge_requests.values())
    for key, name in (("source_branch", "branch"), ("target_branch", "base")):
        if branch := call.query.get(key):
            matching = [each for each in matching if getattr(each, name) == branch]
    return Page(matching, call.show.merge_request)


@route("POST", "PROJECT/merge_requests")
def new_merge_request(call: Call) -> Answer:
    source, target = call.project, call.parameter("target_project_id")
    project = call.find_project(str(target)) if target else source
    created = changes.open_merge_request(
        call.world,
        project,
        call.require_user(),
        call.required_parameter("source_branch"),
        call.required_parameter("target_branch"),
        call.required_parameter("title"),
        call.parameter("description"),
        source=source if source is not project else None,
        squash=call.flag("squash"),
        remove_branch=call.flag("remove_source_branch"),
    )
    if names := call.names("labels"):
        call.world.set_labels(created, call.require_user(), names)
    return Answer(201, call.show.whole(created))


@route("GET", "PROJECT/merge_requests/{iid}")
def merge_request(call: Call) -> Answer:
    return Answer(body=call.show.whole(call.merge_request))


@route("PUT", "PROJECT/merge_requests/{iid}")
def edit_merge_request(call: Call) -> Answer:
    merge_request = call.merge_request
    change_common(call, merge_request)
    if base := call.parameter("target_branch"):
        call.world.change(merge_request, call.require_user(), base=base)
    reviewers = call.people("reviewer_ids")
    if reviewers is not None:
        changes.request_review(call.world, merge_request, call.require_user(), reviewers)
    changes.settle(call.world, merge_request.project)
    return Answer(body=call.show.whole(merge_request))


def _merge_options(call: Call) -> dict[str, Any]:
    options = {name: value for name in _MERGE_TEXTS if (value := call.parameter(name)) is not None}
    return options | {name: call.flag(name) for name in _MERGE_FLAGS if call.parameter(name) is not None}


@route("PUT", "PROJECT/merge_requests/{iid}/merge")
def merge(call: Call) -> Answer:
    changes.merge(call.world, call.merge_request, call.require_user(), _merge_options(call))
    return Answer(body=call.show.whole(call.merge_request))


@route("POST", "PROJECT/merge_requests/{iid}/cancel_merge_when_pipeline_succeeds")
def cancel(call: Call) -> Answer:
    merge_request = call.merge_request
    if merge_request.auto_merge is None:
        raise Refused(406, "406 Not Acceptable")
    merge_request.auto_merge = merge_request.train = None
    call.world.touch(merge_request)
    return Answer(201, {"status": "success"})


@route("PUT", "PROJECT/merge_requests/{iid}/rebase")
def rebase(call: Call) -> Answer:
    changes.rebase(call.world, call.merge_request, call.require_user())
    return Answer(202, {"rebase_in_progress": True})


@route("GET", "PROJECT/merge_requests/{iid}/approvals")
def approvals(call: Call) -> Answer:
    return Answer(body=call.show.approvals(call.merge_request))


@route("POST", "PROJECT/merge_requests/{iid}/approve")
def approve(call: Call) -> Answer:
    changes.approve(call.world, call.merge_request, call.require_user(), call.parameter("sha"))
    return Answer(201, call.show.approvals(call.merge_request))


@route("POST", "PROJECT/merge_requests/{iid}/unapprove")
def unapprove(call: Call) -> Answer:
    changes.unapprove(call.world, call.merge_request, call.require_user())
    return Answer(201, call.show.approvals(call.merge_request))


@route("GET", "PROJECT/merge_requests/{iid}/reviewers")
def reviewers(call: Call) -> Page:
    merge_request = call.merge_request
    return Page(list(merge_request.reviewers), lambda login: call.show.reviewer(merge_request, login))


@route("GET", "PROJECT/merge_requests/{iid}/pipelines")
def pipelines(call: Call) -> Page:
    merge_request = call.merge_request
    matching = [each for each in merge_request.project.pipelines.values() if each.merge_request is merge_request]
    return Page(matching[::-1], call.show.pipeline)


@route("GET", "PROJECT/merge_trains")
def trains(call: Call) -> Page:
    train_list = [merge_request.train for merge_request in call.project.merge_requests.values() if merge_request.train]
    return Page(train_list, call.show.train)


@route("GET", "PROJECT/merge_trains/merge_requests/{iid}")
def train(call: Call) -> Answer:
    record = call.merge_request.train
    if record is None:
        raise Refused(404, "404 Not Found")
    return Answer(body=call.show.train(record))


@route("POST", "PROJECT/merge_trains/merge_requests/{iid}")
def board(call: Call) -> Answer:
    call.require_level(rules.DEVELOPER)
    created = changes.add_to_train(call.world, call.merge_request, call.require_user(), _merge_options(call))
    return Answer(201, [call.show.train(created)])


# --- pipelines and jobs


@route("GET", "PROJECT/pipelines")
def project_pipelines(call: Call) -> Page:
    matching = list(call.project.pipelines.values())
    if sha := call.query.get("sha"):
        matching = [each for each in matching if each.sha == sha]
    key = "updated_at" if call.query.get("order_by") == "updated_at" else "id"
    return Page(sorted(matching, key=lambda each: (getattr(each, key), each.id), reverse=True), call.show.pipeline)


def _pipeline(call: Call) -> Any:
    record = call.project.pipelines.get(int(call.args["pipeline_id"]))
    if record is None:
        raise Refused(404, "404 Not found")
    return record


@route("GET", "PROJECT/pipelines/{pipeline_id}")
def pipeline(call: Call) -> Answer:
    return Answer(body=call.show.whole_pipeline(_pipeline(call)))


@route("GET", "PROJECT/pipelines/{pipeline_id}/jobs")
def jobs(call: Call) -> Page:
    every = call.flag("include_retried")
    matching = [job for job in _pipeline(call).jobs if not job.external and (every or not job.retried)]
    return Page(matching[::-1], call.show.job)


@route("POST", "PROJECT/pipelines/{pipeline_id}/retry")
def retry(call: Call) -> Answer:
    call.require_level(rules.DEVELOPER)
    record = _pipeline(call)
    job_states.retry(call.world, record)
    return Answer(201, call.show.whole_pipeline(record))


def _job(call: Call) -> Any:
    number = int(call.args["job_id"])
    all_jobs = (job for each in call.project.pipelines.values() for job in each.jobs)
    record = next((job for job in all_jobs if job.id == number and not job.external), None)
    if record is None:
        raise Refused(404, "404 Not found")
    return record


@route("GET", "PROJECT/jobs/{job_id}")
def job(call: Call) -> Answer:
    return Answer(body=call.show.job(_job(call)))


@route("GET", "PROJECT/jobs/{job_id}/trace")
def trace(call: Call) -> Answer:
    return Answer(stream=job_states.job_log(_job(call)), headers={"Content-Type": "text/plain; charset=utf-8"})


@route("GET", "PROJECT/repository/commits/{sha}/statuses")
def statuses(call: Call) -> Page:
    jobs = [job for each in call.project.pipelines.values() if each.sha == call.args["sha"] for job in each.jobs]
    if pipeline_id := call.query.get("pipeline_id"):
        jobs = [job for job in jobs if str(job.pipeline.id) == pipeline_id]
    return Page([job for job in jobs if not job.retried], call.show.status)


@route("POST", "PROJECT/statuses/{sha}")
def report(call: Call) -> Answer:
    call.require_level(rules.DEVELOPER)
    name = str(call.parameter("name") or call.parameter("context") or "default")
    created = job_states.report(
        call.world, call.project, call.args["sha"], name, call.required_parameter("state"), external=True, url=call.parameter("target_url"),
        description=call.parameter("description"),
    )  # fmt: skip
    return Answer(201, call.show.status(created))
