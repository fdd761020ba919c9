"""Jobs of pipelines and external commit statuses, and what follows when they change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent_orchestrator.testing.gitlab import merge_requests, rules
from agent_orchestrator.testing.gitlab.pipelines import create_pipeline, newest_pipeline
from agent_orchestrator.testing.gitlab.state import GitLabJob, GitLabPipeline, GitLabProject, Log
from agent_orchestrator.testing.gitlab.world import GitLabWorld

STATUS_OF_CONCLUSION = {None: "running", "failure": "failed", "cancelled": "canceled", "queued": "pending"}


def report_job(
    world: GitLabWorld, project: GitLabProject, sha: str, name: str, status: str | None, *, log: Log | None = None, stage: str = "test",
    allow_failure: bool = False, external: bool = False, url: str | None = None, description: str | None = None,
    failure_reason: str | None = None,
) -> GitLabJob:  # fmt: skip
    """Report a job's state in the newest pipeline of a commit; a job that has ended is run again."""
    current = newest_pipeline(project, sha) or create_pipeline(
        world, project, sha, source="external" if external else "push"
    )
    state = STATUS_OF_CONCLUSION.get(status, status or "running")
    job = next((candidate for candidate in current.jobs if candidate.name == name and not candidate.retried), None)
    if job is None or (job.status in rules.ENDED_STATUSES and not external):
        if job is not None:
            job.retried = True
        job = GitLabJob(
            **world.record_fields(), pipeline=current, name=name, status="created", stage=stage, external=external
        )
        current.jobs.append(job)
    job.allow_failure, job.log, job.target_url, job.description = allow_failure, log, url, description
    job.failure_reason = (failure_reason or "script_failure") if state == "failed" else None
    set_status(world, job, state)
    return job


def set_status(world: GitLabWorld, job: GitLabJob, state: str) -> None:
    job.status = state
    job.started_at = job.started_at or (world.now() if state not in ("created", "pending", "manual") else None)
    job.finished_at = world.now() if state in ("success", "failed", "canceled") else None
    world.touch(job)
    if not job.external:
        world.hooks.send_event(job.pipeline.project, "Job Hook", world.payloads.job_event(job))
    refresh_pipeline(world, job.pipeline)


def refresh_pipeline(world: GitLabWorld, changed: GitLabPipeline) -> None:
    """Recompute a pipeline's status from its jobs, and send the webhook if it has changed."""
    status = rules.pipeline_status(changed)
    if status != changed.status:
        changed.status = status
        changed.finished_at = world.now() if status in ("success", "failed", "canceled") else None
        world.touch(changed)
        world.hooks.send_event(changed.project, "Pipeline Hook", world.payloads.pipeline_event(changed))
    for project in {changed.project, *([changed.merge_request.project] if changed.merge_request else [])}:
        merge_requests.merge_ready(world, project)


def retry_jobs(world: GitLabWorld, retried: GitLabPipeline) -> int:
    """Run failed and canceled jobs again as new jobs; return how many."""
    failed_jobs = [
        job for job in retried.jobs if job.status in ("failed", "canceled") and not job.retried and not job.external
    ]
    for job in failed_jobs:
        job.retried = True
        new_job = GitLabJob(
            **world.record_fields(),
            pipeline=retried,
            name=job.name,
            status="pending",
            stage=job.stage,
            allow_failure=job.allow_failure,
        )
        retried.jobs.append(new_job)
        world.hooks.send_event(retried.project, "Job Hook", world.payloads.job_event(new_job))
    refresh_pipeline(world, retried)
    if failed_jobs and retried.project.ci:
        retried.project.ci(retried.project, retried.sha)
    return len(failed_jobs)


def job_log(job: GitLabJob) -> Iterator[bytes]:
    """Yield a job's log, as its runner sends it."""
    if callable(job.log):
        yield from job.log()
    elif isinstance(job.log, Path):
        with job.log.open("rb") as file:
            while piece := file.read(1 << 16):
                yield piece
    elif job.log:
        text = job.log if isinstance(job.log, bytes) else job.log.encode()
        yield b"\x1b[0KRunning with gitlab-runner 18.5.0\x1b[0;m\n"
        yield b"section_start:1700000000:step_script\r\x1b[0K" + text
        yield b"\nsection_end:1700000001:step_script\r\x1b[0K\x1b[0;m\n"
