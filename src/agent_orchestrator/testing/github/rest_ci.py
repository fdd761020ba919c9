"""REST: check runs and suites, statuses, workflow runs, jobs and their logs, reruns."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.forge.http import ForgeAnswer
from agent_orchestrator.testing.github import checks, rules
from agent_orchestrator.testing.github.calls import GitHubCall, GitHubPage, route
from agent_orchestrator.testing.github.rest import sha_of
from agent_orchestrator.testing.github.shapes import Json
from agent_orchestrator.testing.github.state import CheckSuite, GitHubCheckRun
from agent_orchestrator.testing.github.world import GitHubRefused


@route("GET", "REPO/commits/{ref*}/check-runs")
def check_runs(call: GitHubCall) -> GitHubPage:
    sha = sha_of(call.repo, call.args["ref"])
    runs = rules.check_runs(call.repo, sha, every=call.query.get("filter") == "all")
    runs = [run for run in runs if call.query.get("check_name", run.name) == run.name]
    runs = [run for run in runs if call.query.get("status", run.status) == run.status]
    return GitHubPage(sorted(runs, key=lambda run: -run.id), call.shapes.check_run, "check_runs")


@route("GET", "REPO/commits/{ref*}/check-suites")
def check_suites(call: GitHubCall) -> GitHubPage:
    return GitHubPage(
        rules.suites(call.repo, sha_of(call.repo, call.args["ref"])),
        lambda suite: _suite_shape(call, suite),
        "check_suites",
    )


def _suite_shape(call: GitHubCall, suite: CheckSuite) -> Json:
    return call.shapes.suite(suite) | {"repository": call.shapes.lite_repo(suite.repo)}


@route("GET", "REPO/check-suites/{suite_id}")
def check_suite(call: GitHubCall) -> ForgeAnswer:
    return ForgeAnswer(body=_suite_shape(call, _suite(call)))


@route("GET", "REPO/check-suites/{suite_id}/check-runs")
def runs_of_suite(call: GitHubCall) -> GitHubPage:
    return GitHubPage([run for run in _suite(call).runs if not run.replaced], call.shapes.check_run, "check_runs")


@route("POST", "REPO/check-suites/{suite_id}/rerequest")
def rerequest_suite(call: GitHubCall) -> ForgeAnswer:
    checks.rerun(call.world, _suite(call), call.require_user(), only_failed=False)
    return ForgeAnswer(201, {})


def _suite(call: GitHubCall) -> CheckSuite:
    for suite in call.repo.suites:
        if suite.id == int(call.args["suite_id"]):
            return suite
    raise GitHubRefused(404, "Not Found")


def _run(call: GitHubCall, name: str = "run_id") -> GitHubCheckRun:
    return checks.find_run(call.repo, int(call.args[name]))


@route("GET", "REPO/check-runs/{run_id}")
def check_run(call: GitHubCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.check_run(_run(call)))


@route("GET", "REPO/check-runs/{run_id}/annotations")
def run_annotations(call: GitHubCall) -> GitHubPage:
    run = _run(call)
    default_annotation = {
        "path": "README.md", "start_line": 1, "end_line": 1, "start_column": None, "end_column": None, "annotation_level": "failure",
        "title": None, "message": "", "raw_details": None, "blob_href": f"{call.shapes.repo_page(call.repo)}/blob/{run.suite.head_sha}",
    }  # fmt: skip
    return GitHubPage(run.annotations, lambda annotation: default_annotation | annotation)


@route("POST", "REPO/check-runs/{run_id}/rerequest")
def rerequest_run(call: GitHubCall) -> ForgeAnswer:
    run = _run(call)
    checks.rerun(call.world, run.suite, call.require_user(), only_failed=False, single_run=run)
    return ForgeAnswer(201, {})


@route("GET", "REPO/commits/{ref*}/status")
def status(call: GitHubCall) -> ForgeAnswer:
    repo, sha = call.repo, sha_of(call.repo, call.args["ref"])
    page = GitHubPage(rules.statuses(repo, sha), lambda item: call.shapes.status(item, simple=True))
    url = f"{call.shapes.repo_url(repo)}/commits/{sha}"
    size = min(100, int(call.query.get("per_page", 30)))
    first = (int(call.query.get("page", 1)) - 1) * size
    return ForgeAnswer(body={
        "state": rules.combined_status(repo, sha), "sha": sha, "total_count": len(page.items),
        "statuses": [page.shape(item) for item in page.items[first : first + size]], "repository": call.shapes.lite_repo(repo),
        "commit_url": url, "url": f"{url}/status",
    })  # fmt: skip


@route("GET", "REPO/commits/{ref*}/statuses")
def statuses(call: GitHubCall) -> GitHubPage:
    sha = sha_of(call.repo, call.args["ref"])
    return GitHubPage([item for item in call.repo.statuses[::-1] if item.sha == sha], call.shapes.status)


@route("POST", "REPO/statuses/{sha}")
def set_status(call: GitHubCall) -> ForgeAnswer:
    call.world.require_push(call.repo, call.require_user())
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
    return ForgeAnswer(201, call.shapes.status(created))


@route("GET", "REPO/actions/runs")
def runs(call: GitHubCall) -> GitHubPage:
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
    return GitHubPage(workflow_runs, call.shapes.workflow_run, "workflow_runs")


@route("GET", "REPO/actions/workflows")
def workflows(call: GitHubCall) -> GitHubPage:
    by_name = {suite.workflow.name: suite.workflow for suite in call.repo.suites if suite.workflow}
    return GitHubPage(list(by_name.values()), call.shapes.workflow, "workflows")


@route("GET", "REPO/actions/workflows/{workflow_id}")
def workflow(call: GitHubCall) -> ForgeAnswer:
    for suite in call.repo.suites:
        if suite.workflow and call.shapes.workflow_id(suite.workflow) == int(call.args["workflow_id"]):
            return ForgeAnswer(body=call.shapes.workflow(suite.workflow))
    raise GitHubRefused(404, "Not Found")


@route("GET", "REPO/actions/runs/{run_id}")
def run(call: GitHubCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.workflow_run(checks.find_workflow(call.repo, int(call.args["run_id"]))))


@route("GET", "REPO/actions/runs/{run_id}/jobs")
def jobs(call: GitHubCall) -> GitHubPage:
    suite = checks.find_workflow(call.repo, int(call.args["run_id"])).suite
    every = call.query.get("filter") == "all"
    return GitHubPage([job_run for job_run in suite.runs if every or not job_run.replaced], call.shapes.job, "jobs")


@route("GET", "REPO/actions/jobs/{job_id}")
def job(call: GitHubCall) -> ForgeAnswer:
    return ForgeAnswer(body=call.shapes.job(_run(call, "job_id")))


@route("GET", "REPO/actions/jobs/{job_id}/logs")
def job_log(call: GitHubCall) -> ForgeAnswer:
    call.require_user()
    run = _run(call, "job_id")
    if run.log_gone:
        raise GitHubRefused(410, "Server Error")
    if run.status != "completed" or run.log is None:
        raise GitHubRefused(404, "Not Found")
    return ForgeAnswer(302, headers={"Location": f"{call.shapes.web}/_logs/{run.node_id}"})


@route("GET", "REPO/actions/runs/{run_id}/logs")
def run_log(call: GitHubCall) -> ForgeAnswer:
    call.require_user()
    work = checks.find_workflow(call.repo, int(call.args["run_id"]))
    return ForgeAnswer(302, headers={"Location": f"{call.shapes.web}/_logs/{work.node_id}"})


def log_of(run: GitHubCheckRun) -> Iterator[bytes]:
    """Yield a job's log in pieces; text gets a timestamp before each line, as a runner writes it."""
    if isinstance(run.log, str):
        yield from bare_repository.log_lines(run.log, run.started_at)
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
def rerun_failed(call: GitHubCall) -> ForgeAnswer:
    checks.rerun(
        call.world,
        checks.find_workflow(call.repo, int(call.args["run_id"])).suite,
        call.require_user(),
        only_failed=True,
    )
    return ForgeAnswer(201, {})


@route("POST", "REPO/actions/runs/{run_id}/rerun")
def rerun(call: GitHubCall) -> ForgeAnswer:
    checks.rerun(
        call.world,
        checks.find_workflow(call.repo, int(call.args["run_id"])).suite,
        call.require_user(),
        only_failed=False,
    )
    return ForgeAnswer(201, {})


@route("POST", "REPO/actions/jobs/{job_id}/rerun")
def rerun_job(call: GitHubCall) -> ForgeAnswer:
    run = _run(call, "job_id")
    checks.rerun(call.world, run.suite, call.require_user(), only_failed=False, single_run=run)
    return ForgeAnswer(201, {})


@route("POST", "REPO/actions/runs/{run_id}/approve")
def approve(call: GitHubCall) -> ForgeAnswer:
    checks.approve_run(call.world, checks.find_workflow(call.repo, int(call.args["run_id"])), call.require_user())
    return ForgeAnswer(201, {})
