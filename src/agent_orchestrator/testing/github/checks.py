"""CI: check suites and runs, commit statuses, workflow runs with jobs and logs, and reruns."""

from __future__ import annotations

from typing import Any

from agent_orchestrator.testing.github import rules
from agent_orchestrator.testing.github.state import (
    CheckSuite,
    CommitStatus,
    GitHubCheckRun,
    GitHubUser,
    Log,
    Repo,
    WorkflowRun,
)
from agent_orchestrator.testing.github.world import GitHubRefused, GitHubWorld

FINAL_CONCLUSIONS = ("success", "failure", "neutral", "cancelled", "skipped", "timed_out", "action_required", "stale")


def branch_of(repo: Repo, sha: str) -> str | None:
    branches = [
        ref.removeprefix("refs/heads/") for ref, at in repo.refs.items() if at == sha and ref.startswith("refs/heads/")
    ]
    return next((name for name in branches if name != repo.default_branch), branches[0] if branches else None)


def set_check(
    world: GitHubWorld, repo: Repo, sha: str, name: str, conclusion: str | None, *, status: str | None = None, app: str = "github-actions",
    workflow: str = "CI", log: Log | None = None, title: str | None = None, summary: str | None = None, text: str | None = None,
    details_url: str | None = None, annotations: list[dict[str, Any]] | None = None, sender: GitHubUser | None = None,
) -> GitHubCheckRun:  # fmt: skip
    """Set the state of a check of this commit: update the run in progress, or begin a new one."""
    if conclusion is not None and conclusion not in FINAL_CONCLUSIONS:
        raise ValueError(f"no conclusion {conclusion!r}; one of {', '.join(FINAL_CONCLUSIONS)}, or None while it runs")
    by = sender or repo.owner
    suite = _find_or_create_suite(world, repo, sha, app, workflow, by)
    if suite.workflow:
        suite.workflow.waits_for_approval = False
    run = next((run for run in suite.runs if run.name == name and not run.replaced), None)
    fresh = run is None or run.status == "completed"
    if run is not None and fresh:
        run.replaced = True
    if run is None or fresh:
        run = world.add_record(GitHubCheckRun(
            **world.record_fields("CR"), suite=suite, name=name, status="queued", conclusion=None, started_at=world.now(),
            completed_at=None,
            attempt=suite.workflow.attempt if suite.workflow else 1,
        ))  # fmt: skip
        suite.runs.append(run)
        emit_run_event(world, run, "created", by)
    run.conclusion = conclusion
    run.status = "completed" if conclusion else status or "in_progress"
    run.completed_at = world.now() if conclusion else None
    for field, value in (
        ("log", log),
        ("title", title),
        ("summary", summary),
        ("text", text),
        ("details_url", details_url),
    ):
        if value is not None:
            setattr(run, field, value)
    run.annotations = annotations or run.annotations
    world.touch(run)
    if conclusion:
        emit_run_event(world, run, "completed", by)
    process_completed_suite(world, suite, by)
    return run


def _find_or_create_suite(
    world: GitHubWorld, repo: Repo, sha: str, app: str, workflow: str, actor: GitHubUser
) -> CheckSuite:
    actions = app == "github-actions"
    for suite in rules.suites(repo, sha):
        if suite.app == app and (not actions or (suite.workflow and suite.workflow.name == workflow)):
            return suite
    suite = world.add_record(
        CheckSuite(**world.record_fields("CS"), repo=repo, head_sha=sha, branch=branch_of(repo, sha), app=app)
    )
    repo.suites.append(suite)
    if actions:
        number = 1 + sum(1 for other in repo.suites if other.workflow)
        event = "pull_request" if rules.pulls_of(repo, sha) else "push"
        suite.workflow = world.add_record(WorkflowRun(
            **world.record_fields("WFR"), suite=suite, name=workflow, run_number=number, event=event, actor=actor,
        ))  # fmt: skip
    emit_suite_event(world, suite, "requested", actor)
    return suite


def wait_for_approval(world: GitHubWorld, repo: Repo, sha: str, workflow: str, actor: GitHubUser) -> WorkflowRun:
    """Return the first workflow run of an outside contributor, which waits for a maintainer's approval."""
    work = _find_or_create_suite(world, repo, sha, "github-actions", workflow, actor).workflow
    assert work is not None
    work.waits_for_approval = True
    return work


def approve_run(world: GitHubWorld, work: WorkflowRun, user: GitHubUser) -> None:
    world.require_push(work.suite.repo, user)
    if not work.waits_for_approval:
        raise GitHubRefused(403, "This run is not from a fork pull request")
    work.waits_for_approval = False
    process_completed_suite(world, work.suite, user)
    _run_ci(work.suite)


def process_completed_suite(world: GitHubWorld, suite: CheckSuite, sender: GitHubUser) -> None:
    """Emit the event of a completed suite, once per completion; then merge what is ready."""
    world.touch(suite)
    status, conclusion = rules.suite_state(suite)
    if suite.workflow:
        world.touch(suite.workflow)
    if status == "completed" and suite.announced != conclusion:
        suite.announced = conclusion
        emit_suite_event(world, suite, "completed", sender)
    elif status != "completed":
        suite.announced = None
    world.merge_ready(suite.repo)


def emit_suite_event(world: GitHubWorld, suite: CheckSuite, action: str, sender: GitHubUser) -> None:
    show = world.shapes
    world.emit(suite.repo, "check_suite", sender, action=action, check_suite=show.suite(suite))
    if suite.workflow:
        event_action = "requested" if action == "rerequested" else action
        work = show.workflow_run(suite.workflow)
        world.emit(
            suite.repo,
            "workflow_run",
            sender,
            action=event_action,
            workflow=show.workflow(suite.workflow),
            workflow_run=work,
        )


def emit_run_event(world: GitHubWorld, run: GitHubCheckRun, action: str, sender: GitHubUser) -> None:
    show = world.shapes
    shape = show.check_run(run) | {"check_suite": show.small_suite(run.suite)}
    world.emit(run.suite.repo, "check_run", sender, action=action, check_run=shape)
    if run.suite.workflow:
        event_action = (
            "completed"
            if action == "completed"
            else run.status
            if run.status in ("queued", "in_progress")
            else "queued"
        )
        world.emit(run.suite.repo, "workflow_job", sender, action=event_action, workflow_job=show.job(run))


def set_status(
    world: GitHubWorld, repo: Repo, sha: str, user: GitHubUser, state: str, context: str = "default",
    description: str | None = None, target_url: str | None = None,
) -> CommitStatus:  # fmt: skip
    if state not in ("error", "failure", "pending", "success"):
        raise GitHubRefused(422, "Validation Failed", [f"State is not included in the list: {state}"])
    status_record = world.add_record(CommitStatus(
        **world.record_fields("SC"), repo=repo, sha=sha, context=context, state=state, description=description,
        target_url=target_url, creator=user,
    ))  # fmt: skip
    repo.statuses.append(status_record)
    show = world.shapes
    commit = show.commit(repo, sha)
    del commit["commit"]["verification"]["verified_at"]
    branches = [
        {"name": ref.removeprefix("refs/heads/"), "protected": ref.removeprefix("refs/heads/") in repo.protections,
         "commit": {"sha": head, "url": f"{show.repo_url(repo)}/commits/{head}"}}
        for ref, head in repo.refs.items() if head == sha and ref.startswith("refs/heads/")
    ]  # fmt: skip
    world.emit(
        repo,
        "status",
        user,
        id=status_record.id,
        sha=sha,
        name=repo.full_name,
        target_url=target_url,
        context=context,
        description=description,
        state=state,
        commit=commit,
        branches=branches,
        created_at=status_record.created_at,
        updated_at=status_record.updated_at,
    )
    world.merge_ready(repo)
    return status_record


def rerun(
    world: GitHubWorld,
    suite: CheckSuite,
    user: GitHubUser,
    *,
    only_failed: bool,
    single_run: GitHubCheckRun | None = None,
) -> None:
    """Run checks again: new queued check runs replace the old ones."""
    world.require_push(suite.repo, user)
    old = [run for run in suite.runs if not run.replaced and (single_run is None or run is single_run)]
    if any(run.status != "completed" for run in old):
        raise GitHubRefused(403, "This workflow is already running")
    if only_failed:
        old = [run for run in old if run.conclusion not in ("success", "neutral", "skipped")]
    if not old:
        raise GitHubRefused(403, "This workflow run has no failed jobs to run again")
    if suite.workflow:
        suite.workflow.attempt += 1
    fresh = []
    for run in old:
        run.replaced = True
        fresh.append(world.add_record(GitHubCheckRun(
            **world.record_fields("CR"), suite=suite, name=run.name, status="queued", conclusion=None, started_at=world.now(),
            completed_at=None,
            attempt=run.attempt + 1,
        )))  # fmt: skip
    suite.runs += fresh
    suite.announced = None
    emit_suite_event(world, suite, "rerequested", user)
    for run in fresh:
        emit_run_event(world, run, "created", user)
    process_completed_suite(world, suite, user)
    _run_ci(suite)


def _run_ci(suite: CheckSuite) -> None:
    if suite.repo.ci:
        suite.repo.ci(suite.repo, suite.head_sha)


def find_run(repo: Repo, number: int) -> GitHubCheckRun:
    for suite in repo.suites:
        for run in suite.runs:
            if run.id == number:
                return run
    raise GitHubRefused(404, "Not Found", kind="NOT_FOUND")


def find_workflow(repo: Repo, number: int) -> WorkflowRun:
    for suite in repo.suites:
        if suite.workflow and suite.workflow.id == number:
            return suite.workflow
    raise GitHubRefused(404, "Not Found", kind="NOT_FOUND")
