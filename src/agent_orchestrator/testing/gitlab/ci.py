"""Pipelines and their jobs, and the statuses that others report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agent_orchestrator.testing.gitlab import rules
from agent_orchestrator.testing.gitlab.state import Job, Log, MergeRequest, Pipeline, Project
from agent_orchestrator.testing.gitlab.world import World

WORDS = {None: "running", "failure": "failed", "cancelled": "canceled", "queued": "pending"}


def pipeline(
    world: World, project: Project, sha: str, *, ref: str = "", source: str = "push", of: MergeRequest | None = None
) -> Pipeline:
    """A new pipeline of a commit."""
    branch = ref or next((name.removeprefix("refs/heads/") for name, at in project.refs.items() if at == sha), "main")
    iid = len(project.pipelines) + 1
    made = Pipeline(
        **world.base(),
        project=project,
        iid=iid,
        sha=sha,
        ref=branch,
        user=project.creator,
        source=source,
        merge_request=of,
    )
    project.pipelines[made.id] = made
    for other in world.projects.values():
        for one in other.merge_requests.values():
            if one.state == "opened" and one.head_sha == sha and project in (one.source, one.project):
                one.head_pipeline = made
                made.merge_request = made.merge_request or one
    return made


def adopt(one: MergeRequest) -> None:
    """The pipeline that its head has already; without one, it keeps the old one until another is made."""
    for project in filter(None, (one.source, one.project)):
        found = [other for other in project.pipelines.values() if other.sha == one.head_sha]
        if found:
            one.head_pipeline = found[-1]
            found[-1].merge_request = found[-1].merge_request or one
            return


def newest(project: Project, sha: str) -> Pipeline | None:
    return next((one for one in reversed(project.pipelines.values()) if one.sha == sha), None)


def report(
    world: World, project: Project, sha: str, name: str, status: str | None, *, log: Log | None = None, stage: str = "test",
    allow_failure: bool = False, external: bool = False, url: str | None = None, description: str | None = None,
    failure_reason: str | None = None,
) -> Job:  # fmt: skip
    """A job's state: of the newest pipeline of that commit. A job that has ended already is run again."""
    found = newest(project, sha) or pipeline(world, project, sha, source="external" if external else "push")
    state = WORDS.get(status, status or "running")
    job = next((one for one in found.jobs if one.name == name and not one.retried), None)
    if job is None or (job.status in rules.ENDED and not external):
        if job is not None:
            job.retried = True
        job = Job(**world.base(), pipeline=found, name=name, status="created", stage=stage, external=external)
        found.jobs.append(job)
    job.allow_failure, job.log, job.target_url, job.description = allow_failure, log, url, description
    job.failure_reason = (failure_reason or "script_failure") if state == "failed" else None
    set_status(world, job, state)
    return job


def set_status(world: World, job: Job, state: str) -> None:
    job.status = state
    job.started_at = job.started_at or (world.now() if state not in ("created", "pending", "manual") else None)
    job.finished_at = world.now() if state in ("success", "failed", "canceled") else None
    world.touch(job)
    if not job.external:
        world.hooks.happened(job.pipeline.project, "Job Hook", world.payloads.job_event(job))
    refresh(world, job.pipeline)


def refresh(world: World, one: Pipeline) -> None:
    """What its jobs come to; a pipeline's webhook tells when that is another thing than before."""
    from agent_orchestrator.testing.gitlab import changes

    status = rules.pipeline_status(one)
    if status != one.status:
        one.status = status
        one.finished_at = world.now() if status in ("success", "failed", "canceled") else None
        world.touch(one)
        world.hooks.happened(one.project, "Pipeline Hook", world.payloads.pipeline_event(one))
    for project in {one.project, *([one.merge_request.project] if one.merge_request else [])}:
        changes.settle(world, project)


def retry(world: World, one: Pipeline) -> int:
    """Run what failed or was cancelled again: each as a new job."""
    bad = [job for job in one.jobs if job.status in ("failed", "canceled") and not job.retried and not job.external]
    for job in bad:
        job.retried = True
        again = Job(
            **world.base(),
            pipeline=one,
            name=job.name,
            status="pending",
            stage=job.stage,
            allow_failure=job.allow_failure,
        )
        one.jobs.append(again)
        world.hooks.happened(one.project, "Job Hook", world.payloads.job_event(again))
    refresh(world, one)
    if bad and one.project.ci:
        one.project.ci(one.project, one.sha)
    return len(bad)


def trace(job: Job) -> Iterator[bytes]:
    """What a job printed, as its runner sends it."""
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
