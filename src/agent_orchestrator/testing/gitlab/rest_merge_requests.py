"""REST: merge requests, approvals, merges, merge trains, pipelines and jobs."""

from __future__ import annotations

from typing import Any

from agent_orchestrator.testing.forge.http import ForgeAnswer
from agent_orchestrator.testing.gitlab import jobs as job_states
from agent_orchestrator.testing.gitlab import merge_requests as changes
from agent_orchestrator.testing.gitlab import rules
from agent_orchestrator.testing.gitlab.calls import GitLabCall, GitLabPage, route
from agent_orchestrator.testing.gitlab.rest_issues import change_common_fields, filter_items
from agent_orchestrator.testing.gitlab.state import GitLabMergeRequest, GitLabRefused

_MERGE_TEXTS = ("sha", "merge_commit_message", "squash_commit_message")
_MERGE_FLAGS = ("squash", "should_remove_source_branch", "auto_merge", "merge_when_pipeline_succeeds")


@route("GET", "PROJECT/merge_requests")
def merge_requests(call: GitLabCall) -> GitLabPage:
    matching: list[GitLabMergeRequest] = filter_items(call, call.project.merge_requests.values())
    for key, name in (("source_branch", "branch"), ("target_branch", "base")):
        if branch := call.query.get(key):
            matching = [each for each in matching if getattr(each, name) == branch]
    return GitLabPage(matching, call.shapes.merge_request)


@route("POST", "PROJECT/merge_requests")
def new_merge_request(call: GitLabCall) -> ForgeAnswer:
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
    return ForgeAnswer(201, call.shapes.whole_merge_request(created))


@route("GET", "PROJECT/merge_requests/{iid}")
def merge_request(call: GitLabCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.whole_merge_request(call.merge_request))


@route("PUT", "PROJECT/merge_requests/{iid}")
def edit_merge_request(call: GitLabCall) -> ForgeAnswer:
    merge_request = call.merge_request
    change_common_fields(call, merge_request)
    if base := call.parameter("target_branch"):
        call.world.change_fields(merge_request, call.require_user(), base=base)
    reviewers = call.people("reviewer_ids")
    if reviewers is not None:
        changes.request_review(call.world, merge_request, call.require_user(), reviewers)
    changes.merge_ready(call.world, merge_request.project)
    return ForgeAnswer(body=call.shapes.whole_merge_request(merge_request))


def _merge_options(call: GitLabCall) -> dict[str, Any]:
    options = {name: value for name in _MERGE_TEXTS if (value := call.parameter(name)) is not None}
    return options | {name: call.flag(name) for name in _MERGE_FLAGS if call.parameter(name) is not None}


@route("PUT", "PROJECT/merge_requests/{iid}/merge")
def merge(call: GitLabCall) -> ForgeAnswer:
    changes.merge(call.world, call.merge_request, call.require_user(), _merge_options(call))
    return ForgeAnswer(body=call.shapes.whole_merge_request(call.merge_request))


@route("POST", "PROJECT/merge_requests/{iid}/cancel_merge_when_pipeline_succeeds")
def cancel(call: GitLabCall) -> ForgeAnswer:
    merge_request = call.merge_request
    if merge_request.auto_merge is None:
        raise GitLabRefused(406, "406 Not Acceptable")
    merge_request.auto_merge = merge_request.train = None
    call.world.touch(merge_request)
    return ForgeAnswer(201, {"status": "success"})


@route("PUT", "PROJECT/merge_requests/{iid}/rebase")
def rebase(call: GitLabCall) -> ForgeAnswer:
    changes.rebase(call.world, call.merge_request, call.require_user())
    return ForgeAnswer(202, {"rebase_in_progress": True})


@route("GET", "PROJECT/merge_requests/{iid}/approvals")
def approvals(call: GitLabCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.approvals(call.merge_request))


@route("POST", "PROJECT/merge_requests/{iid}/approve")
def approve(call: GitLabCall) -> ForgeAnswer:
    changes.approve(call.world, call.merge_request, call.require_user(), call.parameter("sha"))
    return ForgeAnswer(201, call.shapes.approvals(call.merge_request))


@route("POST", "PROJECT/merge_requests/{iid}/unapprove")
def unapprove(call: GitLabCall) -> ForgeAnswer:
    changes.unapprove(call.world, call.merge_request, call.require_user())
    return ForgeAnswer(201, call.shapes.approvals(call.merge_request))


@route("GET", "PROJECT/merge_requests/{iid}/reviewers")
def reviewers(call: GitLabCall) -> GitLabPage:
    merge_request = call.merge_request
    return GitLabPage(list(merge_request.reviewers), lambda login: call.shapes.reviewer(merge_request, login))


@route("GET", "PROJECT/merge_requests/{iid}/pipelines")
def pipelines(call: GitLabCall) -> GitLabPage:
    merge_request = call.merge_request
    matching = [each for each in merge_request.project.pipelines.values() if each.merge_request is merge_request]
    return GitLabPage(matching[::-1], call.shapes.pipeline)


@route("GET", "PROJECT/merge_trains")
def trains(call: GitLabCall) -> GitLabPage:
    train_list = [merge_request.train for merge_request in call.project.merge_requests.values() if merge_request.train]
    return GitLabPage(train_list, call.shapes.train)


@route("GET", "PROJECT/merge_trains/merge_requests/{iid}")
def train(call: GitLabCall) -> ForgeAnswer:
    record = call.merge_request.train
    if record is None:
        raise GitLabRefused(404, "404 Not Found")
    return ForgeAnswer(body=call.shapes.train(record))


@route("POST", "PROJECT/merge_trains/merge_requests/{iid}")
def board(call: GitLabCall) -> ForgeAnswer:
    call.require_level(rules.DEVELOPER)
    created = changes.add_to_train(call.world, call.merge_request, call.require_user(), _merge_options(call))
    return ForgeAnswer(201, [call.shapes.train(created)])


# --- pipelines and jobs


@route("GET", "PROJECT/pipelines")
def project_pipelines(call: GitLabCall) -> GitLabPage:
    matching = list(call.project.pipelines.values())
    if sha := call.query.get("sha"):
        matching = [each for each in matching if each.sha == sha]
    key = "updated_at" if call.query.get("order_by") == "updated_at" else "id"
    return GitLabPage(
        sorted(matching, key=lambda each: (getattr(each, key), each.id), reverse=True), call.shapes.pipeline
    )


def _pipeline(call: GitLabCall) -> Any:
    record = call.project.pipelines.get(int(call.args["pipeline_id"]))
    if record is None:
        raise GitLabRefused(404, "404 Not found")
    return record


@route("GET", "PROJECT/pipelines/{pipeline_id}")
def pipeline(call: GitLabCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.whole_pipeline(_pipeline(call)))


@route("GET", "PROJECT/pipelines/{pipeline_id}/jobs")
def jobs(call: GitLabCall) -> GitLabPage:
    every = call.flag("include_retried")
    matching = [job for job in _pipeline(call).jobs if not job.external and (every or not job.retried)]
    return GitLabPage(matching[::-1], call.shapes.job)


@route("POST", "PROJECT/pipelines/{pipeline_id}/retry")
def retry(call: GitLabCall) -> ForgeAnswer:
    call.require_level(rules.DEVELOPER)
    record = _pipeline(call)
    job_states.retry_jobs(call.world, record)
    return ForgeAnswer(201, call.shapes.whole_pipeline(record))


def _job(call: GitLabCall) -> Any:
    number = int(call.args["job_id"])
    all_jobs = (job for each in call.project.pipelines.values() for job in each.jobs)
    record = next((job for job in all_jobs if job.id == number and not job.external), None)
    if record is None:
        raise GitLabRefused(404, "404 Not found")
    return record


@route("GET", "PROJECT/jobs/{job_id}")
def job(call: GitLabCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.job(_job(call)))


@route("GET", "PROJECT/jobs/{job_id}/trace")
def trace(call: GitLabCall) -> ForgeAnswer:
    return ForgeAnswer(stream=job_states.job_log(_job(call)), headers={"Content-Type": "text/plain; charset=utf-8"})


@route("GET", "PROJECT/repository/commits/{sha}/statuses")
def statuses(call: GitLabCall) -> GitLabPage:
    jobs = [job for each in call.project.pipelines.values() if each.sha == call.args["sha"] for job in each.jobs]
    if pipeline_id := call.query.get("pipeline_id"):
        jobs = [job for job in jobs if str(job.pipeline.id) == pipeline_id]
    return GitLabPage([job for job in jobs if not job.retried], call.shapes.status)


@route("POST", "PROJECT/statuses/{sha}")
def report(call: GitLabCall) -> ForgeAnswer:
    call.require_level(rules.DEVELOPER)
    name = str(call.parameter("name") or call.parameter("context") or "default")
    created = job_states.report_job(
        call.world, call.project, call.args["sha"], name, call.required_parameter("state"), external=True, url=call.parameter("target_url"),
        description=call.parameter("description"),
    )  # fmt: skip
    return ForgeAnswer(201, call.shapes.status(created))
