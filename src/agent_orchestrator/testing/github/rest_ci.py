"""REST: check runs and suites, statuses, workflow runs, jobs and their logs, reruns."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

from agent_orchestrator.testing.forge import bare
from agent_orchestrator.testing.forge.wire import Answer
from agent_orchestrator.testing.github import checks, rules
from agent_orchestrator.testing.github.calls import Call, Page, route
from agent_orchestrator.testing.github.rest import sha_of
from agent_orchestrator.testing.github.shapes import Json
from agent_orchestrator.testing.github.state import CheckRun, CheckSuite
from agent_orchestrator.testing.github.world import Refused


@route("GET", "REPO/commits/{ref*}/check-runs")
def check_runs(call: Call) -> Page:
    sha = sha_of(call.repo, call.args["ref"])
    runs = rules.check_runs(call.repo, sha, every=call.query.get("filter") == "all")
    runs = [run for run in runs if call.query.get("check_name", run.name) == run.name]
    runs = [run for run in runs if call.query.get("status", run.status) == run.status]
    return Page(sorted(runs, key=lambda run: -run.id), call.show.check_run, "check_runs")


@route("GET", "REPO/commits/{ref*}/check-suites")
def check_suites(call: Call) -> Page:
    return Page(
        rules.suites(call.repo, sha_of(call.repo, call.args["ref"])),
        lambda suite: _suite_shape(call, suite),
        "check_suites",
    )


def _suite_shape(call: Call, suite: CheckSuite) -> Json:
    return call.show.suite(suite) | {"repository": call.show.lite_repo(suite.repo)}


@route("GET", "REPO/check-suites/{suite_id}")
def check_suite(call: Call) -> Answer:
    return Answer(body=_suite_shape(call, _suite(call)))


@route("GET", "REPO/check-suites/{suite_id}/check-runs")
def runs_of_suite(call: Call) -> Page:
    return Page([run for run in _suite(call).runs if not run.replaced], call.show.check_run, "check_runs")


@route("POST", "REPO/check-suites/{suite_id}/rerequest")
def rerequest_suite(call: Call) -> Answer:
    checks.rerun(call.world, _suite(call), call.require_user(), only_failed=False)
    return Answer(201, {})


def _suite(call: Call) -> CheckSuite:
    for suite in call.repo.suites:
        if suite.id == int(call.args["suite_id"]):
            return suite
    raise Refused(404, "Not Found")


def _run(call: Call, name: str = "run_id") -> CheckRun:
    return checks.find_run(call.repo, int(call.args[name]))


@route("GET", "REPO/check-runs/{run_id}")
def check_run(call: Call) -> Answer:
    return Answer(body=call.show.check_run(_run(call)))


@route("GET", "REPO/check-runs/{run_id}/annotations")
def run_annotations(call: Call) -> Page:
    run = _run(call)
    default_annotation = {
        "path": "README.md", "start_line": 1, "end_line": 1, "start_column": None, "end_column": None, "annotation_level": "failure",
        "title": None, "message": "", "raw_details": None, "blob_href": f"{call.show.page(call.repo)}/blob/{run.suite.head_sha}",
    }  # fmt: skip
    return Page(run.annotations, lambda annotation: default_annotation | annotation)


@route("POST", "REPO/check-runs/{run_id}/rerequest")
def rerequest_run(call: Call) -> Answer:
    run = _run(call)
    checks.rerun(call.world, run.suite, call.require_user(), only_failed=False, single_run=run)
    return Answer(201, {})


@route("GET", "REPO/commits/{ref*}/status")
def status(call: Call) -> Answer:
    repo, sha = call.repo, sha_of(call.repo, call.args["ref"])
    page = Page(rules.statuses(repo, sha), lambda item: call.show.status(item, simple=True))
    url = f"{call.show.repo_url(repo)}/commits/{sha}"
    size = min(100, int(call.query.get("per_page", 30)))
    first = (int(call.query.get("page", 1)) - 1) * size
    return Answer(body={
        "state": rules.combined_status(repo, sha), "sha": sha, "total_count": len(page.items),
        "statuses": [page.shape(item) for item in page.items[first : first + size]], "repository": call.show.lite_repo(repo),
        "commit_url": url, "url": f"{url}/status",
    })  # fmt: skip


@route("GET", "REPO/commits/{ref*}/statuses")
def statuses(call: Call) -> Page:
    sha = sha_of(call.repo, call.args["ref"])
    return Page([item for item in call.repo.statuses[::-1] if item.sha == sha], call.show.status)


@route("POST", "REPO/statuses/{sha}")
def set_status(call: Call) -> Answer:
    call.world.need_push(call.repo, call.require_user())
    created = checks.set_status(
        call.world,
        call.repo,
        sha_of(call.repo, call.args["sha"]),
        call.require_user(),
        call.required_parameter("state"),
        call.parameter("context", "default"),
        call.parameter("description"),
        call.parameter("target_url"),
    )
    return Answer(201, call.show.status(created))


@route("GET", "REPO/actions/runs")
def runs(call: Call) -> Page:
    workflow_runs = [suite.workflow for suite in call.repo.suites[::-1] if suite.workflow]
    for work in list(workflow_runs):
        facts = {
            "branch": work.suite.branch,
            "head_sha": work.suite.head_sha,
            "event": work.event,
            "actor": work.actor.login,
        }
        if any(call.query[name] != fact for name, fact in facts.items() if name in call.query):
            workflow_runs.remove(work)
    if state := call.query.get("status"):
        workflow_runs = [work for work in workflow_runs if state in rules.suite_state(work.suite)]
    return Page(workflow_runs, call.show.workflow_run, "workflow_runs")


@route("GET", "REPO/actions/workflows")
def workflows(call: Call) -> Page:
    by_name = {suite.workflow.name: suite.workflow for suite in call.repo.suites if suite.workflow}
    return Page(list(by_name.values()), call.show.workflow, "workflows")


@route("GET", "REPO/actions/workflows/{workflow_id}")
def workflow(call: Call) -> Answer:
    for suite in call.repo.suites:
        if suite.workflow and call.show.workflow_id(suite.workflow) == int(call.args["workflow_id"]):
            return Answer(body=call.show.workflow(suite.workflow))
    raise Refused(404, "Not Found")


@route("GET", "REPO/actions/runs/{run_id}")
def run(call: Call) -> Answer:
    return Answer(body=call.show.workflow_run(checks.find_workflow(call.repo, int(call.args["run_id"]))))


@route("GET", "REPO/actions/runs/{run_id}/jobs")
def jobs(call: Call) -> Page:
    suite = checks.find_workflow(call.repo, int(call.args["run_id"])).suite
    every = call.query.get("filter") == "all"
    return Page([job_run for job_run in suite.runs if every or not job_run.replaced], call.show.job, "jobs")


@route("GET", "REPO/actions/jobs/{job_id}")
def job(call: Call) -> Answer:
    return Answer(body=call.show.job(_run(call, "job_id")))


@route("GET", "REPO/actions/jobs/{job_id}/logs")
def job_log(call: Call) -> Answer:
    call.require_user()
    run = _run(call, "job_id")
    if run.log_gone:
        raise Refused(410, "Server Error")
    if run.status != "completed" or run.log is None:
        raise Refused(404, "Not Found")
    return Answer(302, headers={"Location": f"{call.show.web}/_logs/{run.node_id}"})


@route("GET", "REPO/actions/runs/{run_id}/logs")
def run_log(call: Call) -> Answer:
    call.require_user()
    work = checks.find_workflow(call.repo, int(call.args["run_id"]))
    return Answer(302, headers={"Location": f"{call.show.web}/_logs/{work.node_id}"})


def log_of(run: CheckRun) -> Iterator[bytes]:
    """Yield a job's log in pieces; text gets a timestamp before each line, as a runner writes it."""
    if isinstance(run.log, str):
        yield from bare.log_lines(run.log, run.started_at)
    elif isinstance(run.log, bytes):
        yield run.log
    elif isinstance(run.log, Path):
        with run.log.open("rb") as file:
            while piece := file.read(1 << 20):
                yield piece
    elif run.log is not None:
        yield from run.log()


def zipped_logs(suite: CheckSuite) -> Iterator[bytes]:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for run in suite.runs:
            if not run.replaced:
                archive.writestr(f"{run.name}/1_Run {run.name}.txt", b"".join(log_of(run)))
    yield buffer.getvalue()


@route("POST", "REPO/actions/runs/{run_id}/rerun-failed-jobs")
def rerun_failed(call: Call) -> Answer:
    checks.rerun(
        call.world,
        checks.find_workflow(call.repo, int(call.args["run_id"])).suite,
        call.require_user(),
        only_failed=True,
    )
    return Answer(201, {})


@route("POST", "REPO/actions/runs/{run_id}/rerun")
def rerun(call: Call) -> Answer:
    checks.rerun(
        call.world,
        checks.find_workflow(call.repo, int(call.args["run_id"])).suite,
        call.require_user(),
        only_failed=False,
    )
    return Answer(201, {})


@route("POST", "REPO/actions/jobs/{job_id}/rerun")
def rerun_job(call: Call) -> Answer:
    run = _run(call, "job_id")
    checks.rerun(call.world, run.suite, call.require_user(), only_failed=False, single_run=run)
    return Answer(201, {})


@route("POST", "REPO/actions/runs/{run_id}/approve")
def approve(call: Call) -> Answer:
    checks.approve_run(call.world, checks.find_workflow(call.repo, int(call.args["run_id"])), call.require_user())
    return Answer(201, {})
