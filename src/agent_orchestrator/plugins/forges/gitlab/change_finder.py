"""Find what may have changed in a project at GitLab, by conditional requests: a listing of merge requests and one of pipelines.

GitLab also counts requests that are answered "not modified", so there are few: the jobs of a pipeline are read only while it runs. Some
changes are in no listing (a resolved discussion, a moved base branch), so every merge request is read again after a while.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agent_orchestrator.errors import Denied, NotFound
from agent_orchestrator.plugins.forges.shared.http import SMALL_PAGE_SIZE, ForgeHttpClient, ResponseTooLarge
from agent_orchestrator.plugins.forges.shared.timestamps import parse_time
from agent_orchestrator.protocols.forge import BaseChecks, Hint, KnownPullRequest, PullRequestState

MAX_AGE = 1_800.0
"""Seconds after which a merge request is read again although no change was seen."""
CLOCK_TOLERANCE = 60.0
"""Seconds by which our clock and GitLab's may differ."""
PIPELINES_PER_POLL = 5
"""Running pipelines whose jobs one call reads."""
PAGE_SIZE = 50
"""Items per page of a listing."""
MAX_LISTING_PAGES = 5
"""Pages of this size that one call reads of the listing of merge requests."""
MAX_MERGEABILITY_READS = 3
"""Readings of one pair of head and base after which an unknown mergeability is left as it is."""
PIPELINES_RETRY_SECONDS = 3_600.0
"""Seconds for which pipelines are not listed after GitLab refused to."""
_PIPELINE_REF = re.compile(r"refs/merge-requests/(\d{1,12})/\w+")


class _ListedMergeRequest(NamedTuple):
    """The part of a merge request that is compared with the last listing."""

    number: int
    updated: str
    head: str
    state: str
    base: str
    is_auto_merge: bool


class _ListedPipeline(NamedTuple):
    """The part of a pipeline that is compared with the last listing."""

    id: int
    head: str
    ref: str
    state: tuple[str, str]


@dataclass(slots=True)
class _GitLabFindings:
    """What one call found so far."""

    pulls: set[int] = field(default_factory=set)
    heads: set[str] = field(default_factory=set)
    branches: set[str] = field(default_factory=set)


class GitLabChangeFinder:
    """Finds changes of one project. It compares with the last call; after a restart, with what is known of the sessions' merge requests."""

    def __init__(self, clock: Callable[[], float], max_age: float = MAX_AGE) -> None:
        self._clock = clock
        self._max_age = max_age
        self._calls = 0
        self._next_pipeline = 0
        self._merge_requests: dict[int, _ListedMergeRequest] | None = None
        self._pipelines: dict[int, _ListedPipeline] | None = None
        self._no_pipelines_until = 0.0
        self._running_pipelines: dict[int, tuple[str, frozenset[tuple[int, str]]]] = {}
        self._unknown_mergeable: dict[int, tuple[str, str, int]] = {}
        self._findings = _GitLabFindings()
        """What a call found before it failed: the next call reports it, because it would not find it again."""
        self.base_checks: dict[str, BaseChecks] = {}
        """The checks of the base branches, from their newest pipelines."""

    def record_read(
        self, pull: PullRequestState, whole: Mapping[str, Any], jobs: str, states: frozenset[tuple[int, str]]
    ) -> None:
        """Record that a merge request was read: its present state is not a change any more.

        `jobs`: the path of its pipeline's jobs while the pipeline runs, otherwise ""; `states`: the states of these jobs.
        """
        if self._merge_requests is not None:
            merge_request = _parse_merge_request(whole)
            self._merge_requests[merge_request.number] = merge_request
        if jobs:
            self._running_pipelines[pull.number] = (jobs, states)
        else:
            self._running_pipelines.pop(pull.number, None)
        if pull.state != "open" or pull.mergeable != "unknown":
            self._unknown_mergeable.pop(pull.number, None)
        elif self._unknown_mergeable.get(pull.number, ("", "", 0))[:2] != (pull.head, pull.base_head):
            self._unknown_mergeable[pull.number] = (pull.head, pull.base_head, MAX_MERGEABILITY_READS)

    async def find_changes(
        self, http: ForgeHttpClient, project: int, repo: str, pulls: Sequence[KnownPullRequest]
    ) -> Hint:
        """Return what is worth reading."""
        findings, now = self._findings, self._clock()
        await self._poll_merge_requests(http, project, pulls, findings)
        busy = [pull for pull in pulls if not pull.settled]
        if (busy or self._calls % 2 == 0) and now >= self._no_pipelines_until:
            await self._poll_pipelines(http, project, pulls, findings)
        self._calls += 1
        await self._poll_jobs(http, busy, findings)
        for pull in pulls:
            head, base, tries = self._unknown_mergeable.get(pull.number, ("", "", 0))
            if tries > 0:
                self._unknown_mergeable[pull.number] = (head, base, tries - 1)
                findings.pulls.add(pull.number)
        findings.pulls |= {pull.number for pull in pulls if now - pull.read_at > self._max_age}
        numbers = {pull.number for pull in pulls}
        self._running_pipelines = {
            number: jobs for number, jobs in self._running_pipelines.items() if number in numbers
        }
        self._unknown_mergeable = {
            number: tries for number, tries in self._unknown_mergeable.items() if number in numbers
        }
        self._findings = _GitLabFindings()
        return Hint(
            repo, tuple(sorted(findings.pulls)), tuple(sorted(findings.heads)), tuple(sorted(findings.branches))
        )

    async def _poll_merge_requests(
        self, http: ForgeHttpClient, project: int, known_pulls: Sequence[KnownPullRequest], findings: _GitLabFindings
    ) -> None:
        """Read the listing of merge requests and note the changed ones."""
        former_requests, by_number = self._merge_requests, {entry.number: entry for entry in known_pulls}
        oldest = min((entry.read_at for entry in known_pulls), default=self._clock()) - CLOCK_TOLERANCE
        try:
            listed = await self._read_newest(http, project, oldest, PAGE_SIZE)
        except ResponseTooLarge:  # descriptions of merge requests may be very long
            listed = await self._read_newest(http, project, oldest, SMALL_PAGE_SIZE)
        for number, merge_request in listed.items():
            former, entry = (former_requests or {}).get(number), by_number.get(number)
            if former is not None:
                is_changed = former != merge_request
            elif entry is not None:
                is_changed = (
                    merge_request.head != entry.head
                    or parse_time(merge_request.updated) > entry.read_at - CLOCK_TOLERANCE
                )
            else:
                is_changed = former_requests is not None
            if is_changed:
                findings.pulls.add(number)
                if merge_request.state == "merged":
                    findings.branches.add(merge_request.base)
        self._merge_requests = {
            **{number: entry for number, entry in (former_requests or {}).items() if number in by_number},
            **listed,
        }

    async def _read_newest(
        self, http: ForgeHttpClient, project: int, oldest: float, size: int
    ) -> dict[int, _ListedMergeRequest]:
        """Return merge requests in pages of `size`, latest change first, back to what is already known or to `oldest`."""
        former_requests = self._merge_requests
        newest = (
            max((merge_request.updated for merge_request in former_requests.values()), default="")
            if former_requests
            else ""
        )
        merge_requests: dict[int, _ListedMergeRequest] = {}
        for page in range(1, MAX_LISTING_PAGES * PAGE_SIZE // size + 1):
            page_parameter = f"&page={page}" if page > 1 else ""
            query = f"scope=all&state=all&order_by=updated_at&sort=desc&per_page={size}{page_parameter}"
            answer = await http.get(f"projects/{project}/merge_requests?{query}", keep=_parse_merge_requests)
            listed: list[_ListedMergeRequest] = answer.data
            merge_requests |= {merge_request.number: merge_request for merge_request in listed}
            oldest_listed = listed[-1].updated if listed else ""
            is_complete = oldest_listed < newest if former_requests is not None else parse_time(oldest_listed) < oldest
            if len(listed) < size or is_complete or (answer.unchanged and former_requests is not None):
                break
        return merge_requests

    async def _poll_pipelines(
        self, http: ForgeHttpClient, project: int, known_pulls: Sequence[KnownPullRequest], findings: _GitLabFindings
    ) -> None:
        """Read the listing of pipelines; note the changed ones and update the checks of the base branches."""
        former_pipelines = self._pipelines
        path = f"projects/{project}/pipelines?order_by=updated_at&sort=desc&per_page={PAGE_SIZE}"
        try:
            answer = await http.get(path, keep=_parse_pipelines)
        except (Denied, NotFound):  # CI is disabled, or the token may not read pipelines
            self._no_pipelines_until = self._clock() + PIPELINES_RETRY_SECONDS
            return
        read_at = {item.head: item.read_at for item in known_pulls}
        pipelines: dict[int, _ListedPipeline] = {item.id: item for item in answer.data}
        for number, item in pipelines.items():
            former = (former_pipelines or {}).get(number)
            if former_pipelines is None:
                is_changed = item.head in read_at and parse_time(item.state[1]) > read_at[item.head] - CLOCK_TOLERANCE
            else:
                is_changed = former != item
            if is_changed:
                findings.heads.add(item.head)
                findings.pulls |= {int(match[1]) for match in [_PIPELINE_REF.fullmatch(item.ref)] if match}
        self._pipelines = pipelines
        bases = {merge_request.base for merge_request in (self._merge_requests or {}).values()}
        self.base_checks |= {base: checks for base in bases if (checks := _base_checks(pipelines.values(), base))}

    async def _poll_jobs(
        self, http: ForgeHttpClient, busy: Sequence[KnownPullRequest], findings: _GitLabFindings
    ) -> None:
        """Read the jobs of a few running pipelines per call, in rotation, and note those that changed."""
        running = [
            pull.number for pull in busy if pull.number in self._running_pipelines and pull.number not in findings.pulls
        ]
        if not running:
            return
        start = self._next_pipeline % len(running)
        self._next_pipeline += PIPELINES_PER_POLL
        for number in (running[start:] + running[:start])[:PIPELINES_PER_POLL]:
            path, states = self._running_pipelines[number]
            try:
                answer = await http.get(path)
            except (Denied, NotFound):
                findings.pulls.add(number)
                continue
            if job_states(answer.data) != states:
                findings.pulls.add(number)


def _base_checks(pipelines: Iterable[_ListedPipeline], base: str) -> BaseChecks | None:
    """Return the checks of a base branch by its newest pipeline, or None if the listing has no pipeline of it."""
    base_pipelines = [pipeline for pipeline in pipelines if pipeline.ref == base and pipeline.state[0] != "skipped"]
    if not base_pipelines:
        return None
    newest = max(base_pipelines)
    if newest.state[0] in ("failed", "canceled"):
        return BaseChecks(newest.head, "red", ("pipeline",))
    return BaseChecks(newest.head, "green" if newest.state[0] in ("success", "manual") else "running")


def job_states(jobs: Any) -> frozenset[tuple[int, str]]:
    """Return the id and status of each job."""
    return frozenset((int(job.get("id") or 0), str(job.get("status"))) for job in _dicts(jobs))


def _parse_merge_requests(data: Any) -> list[_ListedMergeRequest]:
    """Return the compared part of each merge request in a listing."""
    return [_parse_merge_request(item) for item in _dicts(data)]


def _parse_merge_request(data: Mapping[str, Any]) -> _ListedMergeRequest:
    """Return the compared part of a merge request."""
    is_auto_merge = bool(data.get("merge_when_pipeline_succeeds"))
    updated, head, state, base = (str(data.get(key) or "") for key in ("updated_at", "sha", "state", "target_branch"))
    return _ListedMergeRequest(int(data["iid"]), updated, head, state, base, is_auto_merge)


def _parse_pipelines(data: Any) -> list[_ListedPipeline]:
    """Return the compared part of each pipeline in a listing."""
    return [
        _ListedPipeline(
            int(item["id"]), str(item["sha"]), str(item["ref"]), (str(item["status"]), str(item.get("updated_at")))
        )
        for item in _dicts(data)
    ]


def _dicts(data: Any) -> list[Mapping[str, Any]]:
    """Return the objects in a list."""
    return [item for item in data if isinstance(item, Mapping)] if isinstance(data, list) else []
